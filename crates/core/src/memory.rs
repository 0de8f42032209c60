//! Decides whether the host has memory for one more VM.
//!
//! Guests touch far less memory than they are given, so their sizes may add up to more than the host has. A VM is
//! admitted if it could use all of its memory right away. VMs that are still starting have not touched their memory yet
//! and therefore count in full.

use thiserror::Error;

/// Memory that stays free for the host itself: page cache, the daemon, QEMU's own memory.
pub(crate) const HOST_RESERVE_MB: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    pub total_mb: u64,
    pub available_mb: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "not enough memory on the host: {available_mb} MB available, {pending_mb} MB of it reserved for VMs that are starting; \
     {wanted_mb} MB and a reserve of {HOST_RESERVE_MB} MB are needed"
)]
pub struct HostMemoryShort {
    pub wanted_mb: u64,
    pub available_mb: u64,
    pub pending_mb: u64,
}

impl HostMemory {
    pub fn admit(&self, wanted_mb: u64, pending_mb: u64) -> Result<(), HostMemoryShort> {
        let needed = wanted_mb.saturating_add(pending_mb).saturating_add(HOST_RESERVE_MB);
        if needed <= self.available_mb {
            return Ok(());
        }
        Err(HostMemoryShort { wanted_mb, available_mb: self.available_mb, pending_mb })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starting_vms_count_with_full_memory() {
        let host = HostMemory { total_mb: 8192, available_mb: 2048 };
        assert!(host.admit(1024, 0).is_ok());
        assert!(host.admit(1024, 512).is_ok());
        assert!(host.admit(1024, 1024).is_err());
        assert!(host.admit(u64::MAX, 1).is_err());
    }
}
