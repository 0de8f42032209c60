//! Why a machine could not be carried.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::manifest::FORMAT;
use crate::disk::DiskError;
use crate::disk::qcow2_header::HeaderError;
use crate::files::FileError;
use crate::process::JailedError;

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
        "what is in it takes up to {} MB, and {} has {} MB left",
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
            // QEMU's tools say it in words only.
            Self::Convert(error) => error.to_string().contains("No space left on device"),
            Self::Memory(_) | Self::Exists(_) | Self::Changed(_) | Self::Flawed { .. } | Self::Cancelled => {
                false
            }
        }
    }
}

/// What is wrong with a file.
#[derive(Debug, Error)]
pub enum Flaw {
    #[error("it is not a file that agentiso exported ({0})")]
    Foreign(String),
    #[error(
        "it is of format {found}, and this agentiso reads formats up to {FORMAT}; a newer one can read it"
    )]
    Newer { found: u64 },
    #[error("it is damaged or cut off ({0})")]
    Unreadable(#[source] io::Error),
    #[error("its manifest is wrong: {0}")]
    Manifest(String),
    #[error("{expected} should be next in it, and {found} is")]
    Order { expected: String, found: String },
    #[error("it ends where {0} should be next")]
    Ends(String),
    #[error("{member} should have {expected} bytes and has {found}")]
    Size { member: String, expected: u64, found: u64 },
    #[error("its hashes are wrong: {0}")]
    Hashes(String),
    #[error("the content of {0} is not what was exported")]
    Altered(String),
    #[error("something follows its end")]
    Trailing,
    #[error("its disk cannot be used: {0}")]
    Header(#[from] HeaderError),
    #[error("its disk refers to another file ({0:?})")]
    Backing(String),
    #[error("its disk has {found} bytes and should have {expected}")]
    DiskSize { found: u64, expected: u64 },
    #[error("its disk is damaged: {0}")]
    Damaged(JailedError),
    #[error("its memory cannot be used: {0}")]
    Memory(String),
}
