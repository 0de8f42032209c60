//! Whether the host's disk has room for what is about to be made.
//!
//! Disks of workspaces are sparse and their sizes may add up to more than the host has. What must hold is that
//! nothing is begun on a disk that is nearly full: guests that run already need what is left.

use thiserror::Error;

/// Kept free, unless the disk is so small that [`RESERVE_FRACTION`] of it is less.
const RESERVE_BYTES: u64 = 1 << 30;

/// One part in so many of a small disk is kept free.
const RESERVE_FRACTION: u64 = 20;

const MIB: u64 = 1 << 20;

/// The file system that holds the workspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpace {
    pub total_bytes: u64,
    pub available_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the host's disk has {} MB left, {} MB of it promised to snapshots that are being taken; \
     {} MB and a reserve of {} MB are needed",
    .available_bytes / MIB, .promised_bytes / MIB, .wanted_bytes / MIB, .reserve_bytes / MIB
)]
pub struct HostSpaceShort {
    pub wanted_bytes: u64,
    pub available_bytes: u64,
    pub promised_bytes: u64,
    pub reserve_bytes: u64,
}

impl HostSpace {
    pub fn reserve_bytes(&self) -> u64 {
        RESERVE_BYTES.min(self.total_bytes / RESERVE_FRACTION)
    }

    /// Whether the reserve is still there once `wanted` and what was promised to others are written.
    pub fn admit(&self, wanted_bytes: u64, promised_bytes: u64) -> Result<(), HostSpaceShort> {
        let reserve_bytes = self.reserve_bytes();
        let needed = wanted_bytes.saturating_add(promised_bytes).saturating_add(reserve_bytes);
        if needed <= self.available_bytes {
            return Ok(());
        }
        Err(HostSpaceShort {
            wanted_bytes,
            available_bytes: self.available_bytes,
            promised_bytes,
            reserve_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_reserve_is_a_gigabyte_and_less_on_a_small_disk() {
        assert_eq!(HostSpace { total_bytes: 500 * GIB, available_bytes: 0 }.reserve_bytes(), GIB);
        assert_eq!(HostSpace { total_bytes: 10 * GIB, available_bytes: 0 }.reserve_bytes(), GIB / 2);
    }

    #[test]
    fn what_is_wanted_and_what_is_promised_come_on_top_of_the_reserve() {
        let space = HostSpace { total_bytes: 500 * GIB, available_bytes: 3 * GIB };
        assert!(space.admit(2 * GIB, 0).is_ok());
        assert!(space.admit(GIB, GIB).is_ok());
        assert!(space.admit(2 * GIB, 1).is_err());
        assert!(space.admit(u64::MAX, 1).is_err());
        let short = space.admit(GIB, 2 * GIB).unwrap_err().to_string();
        assert!(short.contains("3072 MB left") && short.contains("1024 MB and a reserve"), "{short}");
    }
}
