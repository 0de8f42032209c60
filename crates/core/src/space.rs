//! Decides whether the host's disk has room for a new workspace or snapshot.
//!
//! Disks of workspaces are sparse, and their sizes may add up to more than the host has. But nothing new is begun
//! on a disk that is nearly full, because the running guests need the rest.

use thiserror::Error;

/// Bytes that stay free, unless the disk is so small that one part in [`RESERVE_FRACTION`] of it is less.
const RESERVE_BYTES: u64 = 1 << 30;

/// One part in this many stays free on a small disk.
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
    "not enough disk space on the host: {} MB left, {} MB of it reserved for snapshots that are being taken; \
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
    pub(crate) fn reserve_bytes(&self) -> u64 {
        RESERVE_BYTES.min(self.total_bytes / RESERVE_FRACTION)
    }

    /// Succeeds if the reserve stays free after the wanted and the promised bytes are written.
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
    fn disk_reserve_is_smaller_on_small_disks() {
        assert_eq!(HostSpace { total_bytes: 500 * GIB, available_bytes: 0 }.reserve_bytes(), GIB);
        assert_eq!(HostSpace { total_bytes: 10 * GIB, available_bytes: 0 }.reserve_bytes(), GIB / 2);
    }

    #[test]
    fn space_admission_adds_promises_to_the_reserve() {
        let space = HostSpace { total_bytes: 500 * GIB, available_bytes: 3 * GIB };
        assert!(space.admit(2 * GIB, 0).is_ok());
        assert!(space.admit(GIB, GIB).is_ok());
        assert!(space.admit(2 * GIB, 1).is_err());
        assert!(space.admit(u64::MAX, 1).is_err());
        let short = space.admit(GIB, 2 * GIB).unwrap_err().to_string();
        assert!(short.contains("3072 MB left") && short.contains("1024 MB and a reserve"), "{short}");
    }
}
