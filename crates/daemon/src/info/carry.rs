//! Requests and answers of exporting a snapshot to a file and importing it.

use std::path::PathBuf;

use agentiso_core::names::{SnapshotName, WorkspaceName, WorkspaceRef};

use super::{SnapshotInfo, WorkspaceInfo};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRequest {
    pub source: WorkspaceRef,
    pub snapshot: SnapshotName,
    /// Absolute; the daemon writes it, as the user it runs as.
    pub file: PathBuf,
    /// Whether an existing file may be replaced.
    pub replace: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    pub file: PathBuf,
    pub file_bytes: u64,
    /// The size of the disk and the memory in it.
    pub content_bytes: u64,
    pub has_memory: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRequest {
    /// Absolute.
    pub file: PathBuf,
    /// `None` stands for the name in the file.
    pub name: Option<WorkspaceName>,
    /// Without memory, the workspace boots from its disk.
    pub with_memory: bool,
}

#[derive(Clone, Debug)]
pub struct Imported {
    pub workspace: WorkspaceInfo,
    pub snapshot: SnapshotInfo,
    /// The time from the call until the guest answered under its own identity.
    pub boot_time_ms: u64,
    /// Set if the memory could not be used and only the disk was imported.
    pub warning: Option<String>,
}
