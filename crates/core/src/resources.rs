//! The size of a VM, and the bounds that it must keep.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The least memory with which the guest's kernel, the agent and a shell run.
pub const MIN_MEMORY_MB: u32 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resources {
    pub vcpus: u32,
    pub memory_mb: u32,
    pub disk_gb: u32,
}

/// The largest VM that the configuration allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimits {
    pub max_vcpus: u32,
    pub max_memory_mb: u32,
    pub max_disk_gb: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} must be between {min} and {max}, not {value}")]
pub struct OutOfRange {
    pub field: &'static str,
    pub value: u64,
    pub min: u64,
    pub max: u64,
}

impl Resources {
    /// All values that are out of range; empty if a VM of this size may be made.
    pub fn problems(&self, limits: &ResourceLimits) -> Vec<OutOfRange> {
        let rows = [
            ("vcpus", self.vcpus, 1, limits.max_vcpus),
            ("memory_mb", self.memory_mb, MIN_MEMORY_MB, limits.max_memory_mb),
            ("disk_gb", self.disk_gb, 1, limits.max_disk_gb),
        ];
        rows.into_iter()
            .filter(|(_, value, min, max)| value < min || value > max)
            .map(|(field, value, min, max)| OutOfRange {
                field,
                value: value.into(),
                min: min.into(),
                max: max.into(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ResourceLimits = ResourceLimits { max_vcpus: 8, max_memory_mb: 8192, max_disk_gb: 100 };

    #[test]
    fn every_resource_out_of_range_is_named() {
        let problems = Resources { vcpus: 0, memory_mb: 9000, disk_gb: 101 }.problems(&LIMITS);
        let fields: Vec<_> = problems.iter().map(|p| p.field).collect();
        assert_eq!(fields, ["vcpus", "memory_mb", "disk_gb"]);
    }

    #[test]
    fn resources_at_their_limits_are_allowed() {
        assert!(Resources { vcpus: 8, memory_mb: 8192, disk_gb: 100 }.problems(&LIMITS).is_empty());
        assert!(Resources { vcpus: 1, memory_mb: MIN_MEMORY_MB, disk_gb: 1 }.problems(&LIMITS).is_empty());
    }
}
