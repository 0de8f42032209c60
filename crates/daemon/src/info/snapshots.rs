//! What outsiders ask of snapshots and forks, and what they are told.

use std::time::Duration;

use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_core::names::{NamePrefix, SnapshotName, WorkspaceName, WorkspaceRef};
use serde::{Deserialize, Serialize};

use super::WorkspaceInfo;
use crate::machines::Rung;

/// How many forks one call may ask for, from the tool contract.
pub const MAX_FORKS: u32 = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    pub id: SnapshotId,
    pub name: SnapshotName,
    pub has_memory: bool,
    /// The snapshot that the workspace's state descended from when this one was taken.
    pub parent: Option<SnapshotName>,
    pub created_at: jiff::Timestamp,
    /// What deleting it would give back. Sizes are only filled in by what looks at the disk.
    pub used_bytes: Option<u64>,
    /// What it refers to, shared or not.
    pub referenced_bytes: Option<u64>,
    /// Whether the workspace's state descends from it, with no other snapshot between.
    pub current: bool,
    /// The names of the workspaces that were forked from it.
    pub forks: Vec<String>,
}

/// Where the disk of a fork came from. The source may be gone or have another name by now.
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
    /// How long the guest stood still.
    pub pause: Duration,
}

#[derive(Clone, Debug)]
pub struct Restored {
    pub workspace: WorkspaceInfo,
    pub snapshot: SnapshotInfo,
    pub rung: Rung,
    /// What did not come back as it was: the memory, where only the disk could be brought back.
    pub warning: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkRequest {
    pub source: WorkspaceRef,
    pub snapshot: SnapshotName,
    pub new_name: Option<WorkspaceName>,
    /// Run in the fork by `/bin/sh -c`, one after the other; the first that fails undoes the fork.
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
    /// From the call to a guest that answers under its own identity.
    pub boot_time_ms: u64,
    pub warning: Option<String>,
}

/// What became of each of several forks.
#[derive(Clone, Debug, Default)]
pub struct BatchForked {
    /// By their number.
    pub workers: Vec<WorkspaceInfo>,
    pub failures: Vec<ForkFailed>,
    /// What is not as it was asked for, each with the name of its fork.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkFailed {
    /// Counted from 1.
    pub index: u32,
    pub name: String,
    pub error: String,
}
