//! The result of a comparison.

use std::borrow::Cow;

use thiserror::Error;

use crate::ext4::{Ext4Error, Kind};
use crate::watch::Ended;

/// The paths that differ, each list sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathDiff {
    pub added: Vec<ChangedPath>,
    pub modified: Vec<ChangedPath>,
    pub removed: Vec<ChangedPath>,
    /// Whether some paths are counted but not listed.
    pub truncated: bool,
    /// The number of paths, listed or not.
    pub counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub added: u64,
    pub modified: u64,
    pub removed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedPath {
    /// The path from the root, with a leading slash. It has the guest's bytes: not always UTF-8, and any byte except
    /// zero.
    pub path: Vec<u8>,
    /// The type of the file, or its old type if it was removed.
    pub kind: Kind,
    /// The size in bytes, or the old size if it was removed.
    pub size: u64,
}

impl ChangedPath {
    /// The path for display, with invalid UTF-8 replaced. It may still contain control characters.
    pub fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.path)
    }
}

#[derive(Debug, Error)]
pub enum DiffError {
    #[error("the older disk: {0}")]
    Old(#[source] Ext4Error),
    #[error("the newer disk: {0}")]
    New(#[source] Ext4Error),
    #[error("the trees have more than {0} entries to compare")]
    TooManyEntries(u64),
    #[error("the directories have too many subdirectories to compare")]
    TooManyPending,
    #[error(transparent)]
    Ended(#[from] Ended),
}
