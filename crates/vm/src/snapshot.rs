//! Snapshots of a VM: their sizes, and the changes since one was taken.

use std::collections::BTreeMap;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use serde::{Deserialize, Serialize};

/// A snapshot that was just taken and that survives a crash of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotTaken {
    /// The time that the guest stood still.
    pub pause: Duration,
}

/// The snapshots whose sizes are computed besides the volume's own. For each of them the tables of its layers are
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizesOf {
    NoSnapshot,
    Snapshot(SnapshotId),
    All,
}

/// The space that a workspace's disk and its snapshots take on the host, not counting the image below them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSizes {
    /// The space that deleting the volume would free: the current state, the snapshots and their memory, without
    /// layers shared with forks.
    pub used_bytes: u64,
    /// The space that counts towards the limit: everything that was written for this volume, shared with forks or not,
    /// but nothing that it inherited as a fork.
    pub charged_bytes: u64,
    /// The size that the guest sees.
    pub virtual_bytes: u64,
    pub snapshots: BTreeMap<SnapshotId, SnapshotSizes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSizes {
    /// The space that deleting the snapshot would free.
    pub used_bytes: u64,
    /// The space of everything it needs, shared or not, without the image.
    pub referenced_bytes: u64,
}

/// A snapshot as the volume's record lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSnapshot {
    pub id: SnapshotId,
    /// The nearest snapshot below it.
    pub parent: Option<SnapshotId>,
    pub has_memory: bool,
    /// It was begun after the volume was last settled, so the caller may not know of it.
    pub unconfirmed: bool,
}

/// The snapshot that the state of a disk descends from, according to its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// There is no snapshot of the workspace below it.
    Beginning,
    /// The nearest snapshot below it.
    Snapshot(SnapshotId),
}

/// The difference between a workspace's disk and one of its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDiff {
    /// Bytes in blocks that were written since; a block written twice counts once.
    pub changed_bytes: u64,
    /// `None` if the two file systems could not be compared; `paths_unknown` then says why.
    pub paths: Option<ChangedPaths>,
    pub paths_unknown: Option<String>,
}

/// Paths that differ, each list sorted and cut at a bound; the totals are exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPaths {
    pub added: Vec<ChangedPath>,
    pub modified: Vec<ChangedPath>,
    pub removed: Vec<ChangedPath>,
    pub added_total: u64,
    pub modified_total: u64,
    pub removed_total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPath {
    /// Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// `file`, `dir`, `symlink` or `other`.
    pub kind: String,
    /// The current size, or the last size of a removed path.
    pub size: u64,
}
