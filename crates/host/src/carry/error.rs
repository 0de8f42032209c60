//! The errors of an export or import.

use std::io;
use std::path::PathBuf;

use agentiso_disk::DiskError;
use agentiso_disk::qcow2_header::HeaderError;
use agentiso_sys::files::FileError;
use agentiso_sys::process::JailedError;
use agentiso_vm::CarryFailure;
use thiserror::Error;

use super::manifest::FORMAT;

const MIB: u64 = 1 << 20;

#[derive(Debug, Error)]
pub enum CarryError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("the disk could not be read: {0}")]
    Convert(JailedError),
    #[error("the snapshot's memory cannot be read: {0}")]
    Memory(String),
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    #[error("{} changed while it was read", .0.display())]
    Changed(PathBuf),
    #[error("{} cannot be imported: {flaw}", file.display())]
    Flawed { file: PathBuf, flaw: Flaw },
    #[error(
        "the import needs up to {} MB, but {} has only {} MB free",
        .needed_bytes / MIB, directory.display(), .available_bytes / MIB
    )]
    NoRoom { directory: PathBuf, needed_bytes: u64, available_bytes: u64 },
    #[error("it was cancelled")]
    Cancelled,
}

impl CarryError {
    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::NoRoom { .. } => true,
            Self::File(error) => error.is_out_of_space(),
            Self::Disk(error) => error.is_out_of_space(),
            // QEMU's tools report this only in their message.
            Self::Convert(error) => error.to_string().contains("No space left on device"),
            Self::Memory(_) | Self::Exists(_) | Self::Changed(_) | Self::Flawed { .. } | Self::Cancelled => {
                false
            }
        }
    }
}

/// The reason why a file cannot be imported.
#[derive(Debug, Error)]
pub enum Flaw {
    #[error("it is not an agentiso export ({0})")]
    Foreign(String),
    #[error("it has format {found}, but this agentiso reads formats up to {FORMAT}; use a newer agentiso")]
    Newer { found: u64 },
    #[error("it is damaged or truncated ({0})")]
    Unreadable(#[source] io::Error),
    #[error("invalid manifest: {0}")]
    Manifest(String),
    #[error("expected {expected}, found {found}")]
    Order { expected: String, found: String },
    #[error("it ends before {0}")]
    Ends(String),
    #[error("{member} has {found} bytes instead of {expected}")]
    Size { member: String, expected: u64, found: u64 },
    #[error("invalid hashes: {0}")]
    Hashes(String),
    #[error("the content of {0} does not match its hash")]
    Altered(String),
    #[error("unexpected data after its end")]
    Trailing,
    #[error("its disk cannot be used: {0}")]
    Header(#[from] HeaderError),
    #[error("its disk refers to another file ({0:?})")]
    Backing(String),
    #[error("its disk has {found} bytes instead of {expected}")]
    DiskSize { found: u64, expected: u64 },
    #[error("its disk is damaged: {0}")]
    Damaged(JailedError),
    #[error("its memory cannot be used: {0}")]
    Memory(String),
}

/// The failure as the daemon and its clients tell it apart.
impl From<CarryError> for CarryFailure {
    fn from(error: CarryError) -> Self {
        let reason = error.to_string();
        if error.is_out_of_space() {
            return Self::NoSpace { what: reason };
        }
        match error {
            CarryError::Exists(path) => Self::Exists { path },
            CarryError::Flawed { .. } => Self::Unusable { reason },
            CarryError::File(_)
            | CarryError::Disk(_)
            | CarryError::Convert(_)
            | CarryError::Memory(_)
            | CarryError::Changed(_)
            | CarryError::NoRoom { .. }
            | CarryError::Cancelled => Self::Failed { reason },
        }
    }
}
