//! The errors of taking, using and deleting snapshots.

use agentiso_agent::AgentError;
use agentiso_core::ids::SnapshotId;
use agentiso_disk::DiskError;
use agentiso_sys::files::FileError;
use agentiso_vm::SnapshotFailure;
use thiserror::Error;

use crate::boot::BootError;
use crate::qmp::QmpError;

#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}")]
    Qmp(#[from] QmpError),
    #[error("the guest did not flush its data to disk: {0}")]
    Sync(#[from] AgentError),
    #[error("the guest is paused: {reason}")]
    Stalled { reason: String },
    #[error("the VM's memory could not be prepared for a restore: {0}")]
    Convert(#[source] Box<BootError>),
    #[error("QEMU did not exit after the memory was prepared")]
    Quit,
    #[error("the saved memory cannot be read back")]
    Unreadable,
    #[error("the disks of snapshot {snapshot} cannot be compared: {reason}")]
    Compare { snapshot: SnapshotId, reason: String },
}

impl SnapshotError {
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::File(error) => error.is_out_of_space(),
            Self::Disk(error) => error.is_out_of_space(),
            Self::Convert(error) => error.is_out_of_space(),
            Self::Qmp(_)
            | Self::Sync(_)
            | Self::Stalled { .. }
            | Self::Quit
            | Self::Unreadable
            | Self::Compare { .. } => false,
        }
    }
}

/// The failure as the daemon and its clients tell it apart.
impl From<SnapshotError> for SnapshotFailure {
    fn from(error: SnapshotError) -> Self {
        match error.is_out_of_space() {
            true => Self::NoSpace { what: error.to_string() },
            false => Self::Failed { reason: error.to_string() },
        }
    }
}
