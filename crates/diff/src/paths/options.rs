//! How far a comparison goes.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Enough for a reader, and some hundred kilobytes at most in practice.
const MAX_PATHS: usize = 1000;

/// Two trees of five million files each, which take about half a minute.
const MAX_ENTRIES: u64 = 10_000_000;

/// What may be read to tell touched files from changed ones: a second or less.
const MAX_COMPARED_BYTES: u64 = 256 << 20;

#[derive(Clone)]
pub struct DiffOptions<'a> {
    /// How many paths each list has at most. All are counted.
    pub max_paths: usize,
    /// How many names and blocks of directories are read on both sides together before the comparison gives up.
    pub max_entries: u64,
    /// How many bytes of content are read on both sides together. Files whose content would have to be compared
    /// afterwards count as modified.
    pub max_compared_bytes: u64,
    /// Tells that these bytes are the same on both disks, so that they need not be read twice:
    /// [`Difference::is_shared`](crate::Difference::is_shared). Without it, everything is read.
    pub is_shared: Option<&'a dyn Fn(Range<u64>) -> bool>,
    /// When the comparison ends with an error if it is not complete: a crafted file system may ask for hours of work.
    pub deadline: Option<Instant>,
    /// Set to true by another thread, it ends the comparison soon.
    pub cancelled: Option<&'a AtomicBool>,
}

impl Default for DiffOptions<'_> {
    fn default() -> Self {
        Self {
            max_paths: MAX_PATHS,
            max_entries: MAX_ENTRIES,
            max_compared_bytes: MAX_COMPARED_BYTES,
            is_shared: None,
            deadline: None,
            cancelled: None,
        }
    }
}

impl fmt::Debug for DiffOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiffOptions")
            .field("max_paths", &self.max_paths)
            .field("max_entries", &self.max_entries)
            .field("max_compared_bytes", &self.max_compared_bytes)
            .field("is_shared", &self.is_shared.map(|_| "…"))
            .field("deadline", &self.deadline)
            .field("cancelled", &self.cancelled)
            .finish()
    }
}
