//! The errors of transferring a file of the host.

use std::io;
use std::path::{Path, PathBuf};

use agentiso_tree::TreeError;
use rustix::io::Errno;
use thiserror::Error;

use crate::files::is_out_of_space;

/// An error and the host path it is about.
#[derive(Debug, Error)]
pub enum TransferError {
    /// The path is not inside the transfer directory.
    #[error("{} is not inside the transfer directory {}", path.display(), root.display())]
    Outside { path: PathBuf, root: PathBuf },
    #[error("{} leads through a symbolic link, which is not followed inside the transfer directory", path.display())]
    Link { path: PathBuf },
    #[error("{} does not exist", path.display())]
    Missing { path: PathBuf },
    #[error("the parent directory of {} does not exist", path.display())]
    NoParent { path: PathBuf },
    /// A pipe, a socket or a device.
    #[error("{} is neither a file nor a directory", path.display())]
    Special { path: PathBuf },
    /// A directory is to be made, and its path is taken.
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    #[error("{} is not a valid file path", path.display())]
    BadName { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Tree { path: PathBuf, source: TreeError },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl TransferError {
    /// Whether the disk is full.
    pub fn is_out_of_space(&self) -> bool {
        let source = match self {
            Self::Io { source, .. } => Some(source),
            Self::Tree { source, .. } => source.io(),
            Self::Outside { .. }
            | Self::Link { .. }
            | Self::Missing { .. }
            | Self::NoParent { .. }
            | Self::Special { .. }
            | Self::Exists { .. }
            | Self::BadName { .. } => None,
        };
        source.is_some_and(is_out_of_space)
    }

    pub(super) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), source: source.into() }
    }

    /// Translates the kernel's refusal to resolve a path.
    pub(super) fn resolving(path: &Path, root: &Path, error: Errno) -> Self {
        let path = path.to_owned();
        match error {
            Errno::NOENT => Self::Missing { path },
            Errno::XDEV => Self::Outside { path, root: root.to_owned() },
            Errno::LOOP => Self::Link { path },
            Errno::INVAL | Errno::NAMETOOLONG => Self::BadName { path },
            other => Self::io(&path, other),
        }
    }
}
