//! Limits and options of a comparison.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The default length of lists: enough for a reader, and at most some hundred kilobytes in practice.
const MAX_PATHS: usize = 1000;

/// The default limit: two trees of five million files each, which take about half a minute.
const MAX_ENTRIES: u64 = 10_000_000;

/// The default limit of content that is read to distinguish touched files from changed ones: a second or less.
const MAX_COMPARED_BYTES: u64 = 256 << 20;

#[derive(Clone)]
pub struct DiffOptions<'a> {
    /// The most paths in each list. All paths are counted.
    pub max_paths: usize,
    /// The most directory entries and blocks that are read on both sides together before the comparison gives up.
    pub max_entries: u64,
    /// The most bytes of content that are read on both sides together. Files that would have to be compared after that
    /// count as modified.
    pub max_compared_bytes: u64,
    /// Returns whether these bytes are the same on both disks, so that they need not be read twice:
    /// [`Difference::is_shared`](crate::Difference::is_shared). Without it, everything is read.
    pub is_shared: Option<&'a dyn Fn(Range<u64>) -> bool>,
    /// The time at which an incomplete comparison ends with an error: a crafted file system may require hours of work.
    pub deadline: Option<Instant>,
    /// Another thread sets it to true to end the comparison soon.
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
