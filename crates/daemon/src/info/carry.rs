//! What outsiders ask of machines in files, and what they are told.

use std::path::PathBuf;

use agentiso_core::names::{SnapshotName, WorkspaceName, WorkspaceRef};

use super::{SnapshotInfo, WorkspaceInfo};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRequest {
    pub source: WorkspaceRef,
    pub snapshot: SnapshotName,
    /// Absolute; the daemon writes it, as the user it runs as.
    pub file: PathBuf,
    /// Whether a file that is there may go.
    pub replace: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    pub file: PathBuf,
    pub file_bytes: u64,
    /// What the disk and the memory in it have.
    pub content_bytes: u64,
    pub has_memory: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRequest {
    /// Absolute.
    pub file: PathBuf,
    /// The name in the file if there is none.
    pub name: Option<WorkspaceName>,
    /// Without, it boots from its disk.
    pub with_memory: bool,
}

#[derive(Clone, Debug)]
pub struct Imported {
    pub workspace: WorkspaceInfo,
    pub snapshot: SnapshotInfo,
    /// From the call to a guest that answers under its own identity.
    pub boot_time_ms: u64,
    /// What did not come as it was: the memory, where only the disk could be used.
    pub warning: Option<String>,
}
