//! Errors of the file system, with the attempted action and the path.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// An operation on a path that failed.
#[derive(Debug, Error)]
pub struct FsError {
    pub action: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

impl FsError {
    pub(crate) fn new(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { action, path: path.to_owned(), source: source.into() }
    }

    /// Whether a full disk of the host is the cause.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.action, self.path.display(), self.source)?;
        if self.is_disk_full() {
            write!(f, " (the host's disk is full: free some space and run it again)")?;
        }
        Ok(())
    }
}

/// Adds action and path to a result.
pub(crate) trait FsContext<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FsError>;
}

impl<T, E: Into<io::Error>> FsContext<T> for Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FsError> {
        self.map_err(|source| FsError::new(action, path, source))
    }
}
