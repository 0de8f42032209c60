//! Lists of notes and folders, and statistics of the vault.

use std::sync::Mutex;
use std::sync::PoisonError;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::VaultError;
use crate::notes::Vault;
use crate::path::FolderPath;
use crate::root::size_of;
use crate::walk::{Found, walk};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub path: String,
    pub is_dir: bool,
    /// The size of a note in bytes; absent for folders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by path.
    pub entries: Vec<Entry>,
    /// Whether the listing finished before its time ran out.
    pub complete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecentFile {
    pub path: String,
    pub size_bytes: u64,
    pub modified: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    pub total_notes: u64,
    pub total_folders: u64,
    pub total_size_bytes: u64,
    /// The newest first.
    pub recent_files: Vec<RecentFile>,
    #[serde(skip)]
    pub complete: bool,
}

impl Vault {
    pub fn list(&self, folder: &FolderPath, recursive: bool) -> Result<Listing, VaultError> {
        self.settings.check_folder(folder)?;
        let entries = Mutex::new(Vec::new());
        let complete = walk(&self.root()?, &self.settings, folder, recursive, |found| {
            let entry = match found {
                Found::Folder(path) => Entry { path, is_dir: true, size: None },
                Found::Note(note) => {
                    let size = note.stat().map(|stat| size_of(&stat));
                    Entry { path: note.path(), is_dir: false, size }
                }
            };
            entries.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        })?;
        let mut entries = entries.into_inner().unwrap_or_else(PoisonError::into_inner);
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(Listing { entries, complete })
    }

    pub fn stats(&self, recent_count: usize) -> Result<Stats, VaultError> {
        let none = Stats {
            total_notes: 0,
            total_folders: 0,
            total_size_bytes: 0,
            recent_files: Vec::new(),
            complete: true,
        };
        let stats = Mutex::new(none);
        let complete = walk(&self.root()?, &self.settings, &FolderPath::root(), true, |found| {
            let mut note = match found {
                Found::Folder(_) => None,
                Found::Note(note) => match note.stat() {
                    Some(stat) => Some(RecentFile {
                        path: note.path(),
                        size_bytes: size_of(&stat),
                        modified: modified(&stat),
                    }),
                    // The file was removed since its name was read.
                    None => return,
                },
            };
            let mut stats = stats.lock().unwrap_or_else(PoisonError::into_inner);
            match note.take() {
                None => stats.total_folders += 1,
                Some(note) => {
                    stats.total_notes += 1;
                    stats.total_size_bytes += note.size_bytes;
                    keep_recent(&mut stats.recent_files, note, recent_count);
                }
            }
        })?;
        let stats = stats.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Stats { complete, ..stats })
    }
}

/// Inserts a file into the sorted list of the newest files, and limits its length. Ties are ordered by path, so that
/// the result is deterministic.
fn keep_recent(recent: &mut Vec<RecentFile>, file: RecentFile, count: usize) {
    let at = recent.partition_point(|other| {
        (other.modified, std::cmp::Reverse(&other.path)) > (file.modified, std::cmp::Reverse(&file.path))
    });
    if at < count {
        recent.insert(at, file);
        recent.truncate(count);
    }
}

fn modified(stat: &rustix::fs::Stat) -> Timestamp {
    // A time outside the representable range counts as the epoch.
    let nanoseconds = i32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Timestamp::new(stat.st_mtime, nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
