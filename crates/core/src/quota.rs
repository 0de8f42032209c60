//! The quota of one session, and reservations against it.
//!
//! A reservation is made before anything is created, and kept or released afterwards, so that concurrent
//! creates can never exceed the quota together.

use thiserror::Error;

use crate::resources::Resources;

/// The quota of each session, from the tool contract.
pub const SESSION_QUOTA: Usage = Usage { workspaces: 10, memory_mb: 16_384, disk_gb: 100 };

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub workspaces: u64,
    pub memory_mb: u64,
    pub disk_gb: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} quota exceeded: {used} in use, {wanted} wanted, {limit} allowed per session")]
pub struct QuotaExceeded {
    pub what: &'static str,
    pub used: u64,
    pub wanted: u64,
    pub limit: u64,
}

impl Usage {
    pub fn of(resources: &Resources) -> Self {
        Self { workspaces: 1, memory_mb: resources.memory_mb.into(), disk_gb: resources.disk_gb.into() }
    }

    /// The usage with `wanted` added, or the limit that it would exceed.
    pub fn reserve(self, wanted: Usage, limit: Usage) -> Result<Usage, QuotaExceeded> {
        let add = |what, used: u64, wanted: u64, limit: u64| match used.checked_add(wanted) {
            Some(sum) if sum <= limit => Ok(sum),
            Some(_) | None => Err(QuotaExceeded { what, used, wanted, limit }),
        };
        Ok(Usage {
            workspaces: add("workspace", self.workspaces, wanted.workspaces, limit.workspaces)?,
            memory_mb: add("memory (MB)", self.memory_mb, wanted.memory_mb, limit.memory_mb)?,
            disk_gb: add("disk (GB)", self.disk_gb, wanted.disk_gb, limit.disk_gb)?,
        })
    }

    pub fn release(self, given_back: Usage) -> Usage {
        Usage {
            workspaces: self.workspaces.saturating_sub(given_back.workspaces),
            memory_mb: self.memory_mb.saturating_sub(given_back.memory_mb),
            disk_gb: self.disk_gb.saturating_sub(given_back.disk_gb),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn eleventh_workspace_of_session_is_refused() {
        let one = Usage::of(&Resources { vcpus: 1, memory_mb: 512, disk_gb: 1 });
        let mut used = Usage::default();
        for _ in 0..10 {
            used = used.reserve(one, SESSION_QUOTA).unwrap();
        }
        let refused = used.reserve(one, SESSION_QUOTA).unwrap_err();
        assert_eq!((refused.what, refused.used, refused.limit), ("workspace", 10, 10));
    }

    proptest! {
        #[test]
        fn release_undoes_reserve(w in 0u64..5, m in 0u64..5000, d in 0u64..50) {
            let wanted = Usage { workspaces: w, memory_mb: m, disk_gb: d };
            let start = Usage { workspaces: 3, memory_mb: 100, disk_gb: 7 };
            if let Ok(sum) = start.reserve(wanted, SESSION_QUOTA) {
                prop_assert_eq!(sum.release(wanted), start);
            }
        }
    }
}
