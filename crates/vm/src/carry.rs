//! Snapshots that are carried from one host to another in a file.

use std::path::{Path, PathBuf};

use agentiso_core::ids::SnapshotId;
use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};
use agentiso_core::resources::Resources;
use serde::{Deserialize, Serialize};

/// The name and time of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub workspace: WorkspaceName,
    pub snapshot: SnapshotName,
    pub taken_at: jiff::Timestamp,
}

/// The file of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub path: PathBuf,
    /// Whether an existing file may be replaced.
    pub replace: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    pub has_memory: bool,
    /// The size of the disk and the memory together.
    pub content_bytes: u64,
    /// The size of the exported file.
    pub file_bytes: u64,
}

/// The workspace and snapshot in a file. The file's manifest contains it in this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub workspace: WorkspaceName,
    pub snapshot: SnapshotName,
    pub taken_at: jiff::Timestamp,
    pub resources: Resources,
    /// The image its disk was made from. The file holds the whole disk, so an import does not need the image.
    pub image: ImageName,
    pub image_id: String,
    pub image_virtual_bytes: u64,
    /// The guest's init mode when it booted.
    pub init_mode: String,
}

/// The file that a new workspace is imported from.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    pub file: &'a Path,
    /// The id of the imported snapshot.
    pub snapshot: SnapshotId,
    pub with_memory: bool,
}

/// A volume whose head and only snapshot have the imported content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub vm: Facts,
    /// Whether its memory was imported.
    pub has_memory: bool,
    /// The reason why the memory in the file was not imported, or another difference between the hosts.
    pub warning: Option<String>,
}

/// The contents of a file according to its header; whether the file is complete is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    pub vm: Facts,
    pub has_memory: bool,
    /// The size of the disk and the memory.
    pub content_bytes: u64,
}
