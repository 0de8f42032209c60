//! Requests and answers about snapshots and forks.

use std::time::Duration;

use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_core::names::{NamePrefix, SnapshotName, WorkspaceName, WorkspaceRef};
use serde::{Deserialize, Serialize};

use super::WorkspaceInfo;
use crate::vms::Rung;

/// The most forks that one call may ask for, from the tool contract.
pub const MAX_FORKS: u32 = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    pub id: SnapshotId,
    pub name: SnapshotName,
    pub has_memory: bool,
    /// The snapshot that the workspace's state descended from when this one was taken.
    pub parent: Option<SnapshotName>,
    pub created_at: jiff::Timestamp,
    /// Bytes that deleting it would free. Sizes are only filled in by calls that look at the disk.
    pub used_bytes: Option<u64>,
    /// Bytes that it refers to, shared or not.
    pub referenced_bytes: Option<u64>,
    /// Whether the workspace's state descends from it, with no other snapshot between.
    pub current: bool,
    /// The names of the workspaces that were forked from it.
    pub forks: Vec<String>,
}

/// The source of a fork's disk. The source may be gone or renamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    pub source_workspace_id: WorkspaceId,
    pub source_workspace_name: WorkspaceName,
    pub snapshot_name: SnapshotName,
    pub snapshot_id: SnapshotId,
}

#[derive(Clone, Debug)]
pub struct SnapshotMade {
    pub workspace: WorkspaceInfo,
    pub snapshot: SnapshotInfo,
    /// The time that the guest stood still.
    pub pause: Duration,
}

#[derive(Clone, Debug)]
pub struct Restored {
    pub workspace: WorkspaceInfo,
    pub snapshot: SnapshotInfo,
    pub rung: Rung,
    /// Set if the memory could not be restored and only the disk was.
    pub warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkRequest {
    pub source: WorkspaceRef,
    pub snapshot: SnapshotName,
    pub new_name: Option<WorkspaceName>,
    /// Run in the fork by `/bin/sh -c`, one after the other; the first failure undoes the fork.
    pub setup_commands: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkManyRequest {
    pub source: WorkspaceRef,
    pub snapshot: SnapshotName,
    pub count: u32,
    pub name_prefix: NamePrefix,
    pub setup_commands: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Forked {
    pub workspace: WorkspaceInfo,
    /// The time from the call until the guest answered under its own identity.
    pub boot_time_ms: u64,
    pub warning: Option<String>,
}

/// The result of each of several forks.
#[derive(Clone, Debug, Default)]
pub struct BatchForked {
    /// In the order of their numbers.
    pub workers: Vec<WorkspaceInfo>,
    pub failures: Vec<ForkFailed>,
    /// Deviations from the request, each with the name of its fork.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkFailed {
    /// Counted from 1.
    pub index: u32,
    pub name: String,
    pub error: String,
}
