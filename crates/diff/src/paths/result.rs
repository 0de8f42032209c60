//! What a comparison finds.

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
    /// How many there are, listed or not.
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
    /// From the root on, with a slash in front. The guest's bytes: not always UTF-8, and any but zero.
    pub path: Vec<u8>,
    /// What it is, or was if it was removed.
    pub kind: Kind,
    /// The length of its content in bytes, or what it was if it was removed.
    pub size: u64,
}

impl ChangedPath {
    /// The path for people, with what is not UTF-8 replaced. It may still hold control characters.
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
