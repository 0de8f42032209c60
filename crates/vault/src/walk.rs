//! Walks the folders of the vault with several threads.
//!
//! Every folder and file is opened beneath its parent and never through a link, so a tree that is rearranged meanwhile
//! cannot lead the walk out of the vault. Entries that disappear during the walk are left out.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};

use crate::error::VaultError;
use crate::path::FolderPath;
use crate::root::{Root, open_beneath};
use crate::settings::Settings;

/// Files are handed out in portions, so that one large folder keeps all threads busy.
const PORTION: usize = 128;

/// The most threads. More would only wait for each other.
const MAX_THREADS: usize = 8;

/// The time limit of a walk, since a vault of a million notes takes too long. Clients give most calls 30 seconds.
const TIME: Duration = Duration::from_secs(20);

/// An entry that the walk finds.
pub(crate) enum Found<'a> {
    Folder(String),
    Note(Note<'a>),
}

pub(crate) struct Note<'a> {
    folder: &'a Folder,
    name: &'a str,
}

impl Note<'_> {
    pub(crate) fn path(&self) -> String {
        self.folder.path.child(self.name)
    }

    pub(crate) fn stat(&self) -> Option<Stat> {
        rustix::fs::statat(&self.folder.directory, self.name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    pub(crate) fn open(&self) -> Option<File> {
        open_beneath(&self.folder.directory, self.name, OFlags::empty()).ok().map(File::from)
    }
}

struct Folder {
    path: FolderPath,
    directory: OwnedFd,
}

enum Work {
    Folder(FolderPath),
    Notes(Arc<Folder>, Vec<String>),
}

/// The queue of work, shared by the threads.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    deadline: Instant,
}

struct State {
    work: Vec<Work>,
    busy: usize,
    complete: bool,
}

/// Visits everything below a folder, or only its direct entries. `false` if the time ran out before the end.
pub(crate) fn walk(
    root: &Root,
    settings: &Settings,
    start: &FolderPath,
    recursive: bool,
    visit: impl Fn(Found<'_>) + Sync,
) -> Result<bool, VaultError> {
    // The start folder must exist; folders below it may disappear.
    drop(root.folder(start)?);
    let state = State { work: vec![Work::Folder(start.clone())], busy: 0, complete: true };
    let queue = Queue { state: Mutex::new(state), changed: Condvar::new(), deadline: Instant::now() + TIME };
    let walker = Walker { root, settings, recursive, queue: &queue, visit: &visit };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MAX_THREADS);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| walker.run());
        }
        walker.run();
    });
    Ok(queue.lock().complete)
}

struct Walker<'a, V> {
    root: &'a Root,
    settings: &'a Settings,
    recursive: bool,
    queue: &'a Queue,
    visit: &'a V,
}

impl<V: Fn(Found<'_>) + Sync> Walker<'_, V> {
    fn run(&self) {
        while let Some(work) = self.queue.take() {
            // Counted down also if the visitor panics: other threads must not wait for this one.
            let _busy = BusyGuard(self.queue);
            match work {
                Work::Folder(path) => self.list(path),
                Work::Notes(folder, names) => {
                    for name in &names {
                        (self.visit)(Found::Note(Note { folder: &folder, name }));
                    }
                }
            }
        }
    }

    fn list(&self, path: FolderPath) {
        let Ok(directory) = self.root.folder(&path) else { return };
        let Ok(entries) = Dir::read_from(directory.as_fd()) else { return };
        let folder = Arc::new(Folder { path, directory });
        let mut notes = Vec::new();
        for entry in entries.flatten() {
            // Names that are not UTF-8 are skipped, because an answer cannot contain them.
            let Ok(name) = entry.file_name().to_str() else { continue };
            match self.kind(&folder, name, entry.file_type()) {
                FileType::Directory if name != "." && name != ".." && !self.settings.is_excluded(name) => {
                    let below = folder.path.folder(name);
                    (self.visit)(Found::Folder(below.as_str().to_owned()));
                    if self.recursive {
                        self.queue.add(Work::Folder(below));
                    }
                }
                FileType::RegularFile if self.settings.is_note(name) => notes.push(name.to_owned()),
                FileType::Directory
                | FileType::RegularFile
                | FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => {}
            }
            if notes.len() == PORTION {
                self.queue.add(Work::Notes(Arc::clone(&folder), std::mem::take(&mut notes)));
            }
        }
        if !notes.is_empty() {
            self.queue.add(Work::Notes(folder, notes));
        }
    }

    /// The type of an entry. Some file systems do not report it with the name.
    fn kind(&self, folder: &Folder, name: &str, told: FileType) -> FileType {
        if told != FileType::Unknown {
            return told;
        }
        let stat = rustix::fs::statat(&folder.directory, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, work: Work) {
        self.lock().work.push(work);
        self.changed.notify_one();
    }

    /// The next piece of work; `None` when the queue is empty and no thread can add more.
    fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if Instant::now() >= self.deadline && !state.work.is_empty() {
                state.work.clear();
                state.complete = false;
            }
            if let Some(work) = state.work.pop() {
                state.busy += 1;
                return Some(work);
            }
            if state.busy == 0 {
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Marks a thread as busy until it is dropped.
struct BusyGuard<'a>(&'a Queue);

impl Drop for BusyGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().busy -= 1;
        self.0.changed.notify_all();
    }
}
