//! Changes a note that another program may be changing at the same time, so that no edit is lost.
//!
//! ```text
//!  read ── edit ── write beside it, sync ── leases ── still what was read? ── exchange ── displaced what was read,
//!    ▲                                        │taken            │no             the two    and no writer waits for it?
//!    │                                        │                 │                           │no            │yes
//!    └─────────────────── wait ◀──────────────┴─────────────────┴──────── exchange back ◀───┘    sync, remove the old
//! ```
//!
//! A program that replaces the note by a rename is detected because the displaced file is not the one that was read. A
//! program that writes into the note is blocked or detected by a lease on it. A program that opens the note while our
//! version is in its place and may still be taken back is blocked by a lease on our version. All this takes
//! microseconds. Without leases, the displaced file is compared once more instead.

use std::fs::File;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use crate::error::{REPLACE, VaultError};
use crate::fresh::Fresh;
use crate::lease::{self, Lease, Leased, Waiting};
use crate::locked::{LockedFolder, PAUSE};
use crate::root::{identity, open_beneath, read_whole, regular};

/// The longest wait for other programs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The result of an edit.
#[derive(Debug)]
pub(crate) struct Edit<T> {
    /// The new content. `None`: the note is unchanged.
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) answer: T,
}

enum Attempt<T> {
    Done(T),
    /// Another program changed the note meanwhile; nothing was done.
    Disturbed,
}

/// Applies an edit to a note. The edit gets `None` if there is no such note, and is called again if the note changed
/// meanwhile.
pub(crate) fn edit<T, E: From<VaultError>>(
    folder: &LockedFolder,
    name: &str,
    mut edit: impl FnMut(Option<&[u8]>) -> Result<Edit<T>, E>,
) -> Result<T, E> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Attempt::Done(answer) = attempt(folder, name, &mut edit)? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            return Err(VaultError::Busy { path: folder.note(name).to_string() }.into());
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// Writes a note regardless of its old content.
pub(crate) fn overwrite(folder: &LockedFolder, name: &str, content: &[u8]) -> Result<bool, VaultError> {
    let before = open(folder, name)?.map(|file| stat(&file, folder, name)).transpose()?;
    Fresh::write(folder, name, content, before.as_ref())?.publish_over(name)?;
    Ok(before.is_none())
}

fn attempt<T, E: From<VaultError>>(
    folder: &LockedFolder,
    name: &str,
    edit: &mut impl FnMut(Option<&[u8]>) -> Result<Edit<T>, E>,
) -> Result<Attempt<T>, E> {
    let Some(file) = open(folder, name)? else {
        let Edit { content, answer } = edit(None)?;
        let Some(content) = content else { return Ok(Attempt::Done(answer)) };
        return match Fresh::write(folder, name, &content, None)?.publish_new(name) {
            Ok(()) => Ok(Attempt::Done(answer)),
            Err(VaultError::Exists { .. }) => Ok(Attempt::Disturbed),
            Err(error) => Err(error.into()),
        };
    };
    let before = stat(&file, folder, name)?;
    let bytes = read_whole(&file, folder.note(name))?;
    let edited = edit(Some(&bytes));
    let changed = |edited: &Edit<T>| edited.content.as_ref().is_some_and(|content| *content != bytes);
    let (content, answer) = match edited {
        Ok(edited) if changed(&edited) => (edited.content.unwrap_or_default(), edited.answer),
        // An answer about a note that another program is writing is discarded.
        done => {
            let old = Old { file, stat: before, bytes };
            return if old.is_settled(folder, name) {
                done.map(|done| Attempt::Done(done.answer))
            } else {
                Ok(Attempt::Disturbed)
            };
        }
    };
    let fresh = Fresh::write(folder, name, &content, Some(&before))?;
    let old = Old { file, stat: before, bytes };
    Ok(if swap(folder, name, fresh, &old)? { Attempt::Done(answer) } else { Attempt::Disturbed })
}

/// The note as it was when it was read.
struct Old {
    file: File,
    stat: Stat,
    bytes: Vec<u8>,
}

impl Old {
    /// Whether the note is unchanged since it was read. False in case of doubt.
    fn is_unchanged(&self, folder: &LockedFolder, name: &str) -> bool {
        let times = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        rustix::fs::fstat(&self.file).is_ok_and(|now| times(&now) == times(&self.stat))
            && rustix::fs::seek(&self.file, SeekFrom::Start(0)).is_ok()
            && read_whole(&self.file, folder.note(name)).is_ok_and(|bytes| bytes == self.bytes)
    }

    /// Like [`Self::is_unchanged`], and no writer has it open.
    fn is_settled(&self, folder: &LockedFolder, name: &str) -> bool {
        match lease::no_writers(&self.file) {
            Leased::Held(_) | Leased::Unavailable => self.is_unchanged(folder, name),
            Leased::Taken => false,
        }
    }

    fn has_the_name(&self, folder: &LockedFolder, name: &str) -> bool {
        let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| identity(&found) == identity(&self.stat))
    }
}

/// Exchanges the new file with the old one. `false` if the old file was not the one that was read; it is put back then.
fn swap(folder: &LockedFolder, name: &str, fresh: Fresh<'_>, old: &Old) -> Result<bool, VaultError> {
    let ours = match lease::nobody_else(fresh.file()) {
        Leased::Held(lease) => Some(lease),
        Leased::Taken | Leased::Unavailable => None,
    };
    let theirs = match lease::no_writers(&old.file) {
        Leased::Held(lease) => Some(lease),
        Leased::Taken => return Ok(false),
        Leased::Unavailable => None,
    };
    // With a lease, the file is unchanged unless a process waits to open it; without one, it has to be compared.
    let is_untouched = || match &theirs {
        Some(lease) => lease.waiting() == Waiting::Nobody,
        None => old.is_unchanged(folder, name),
    };
    if !old.is_unchanged(folder, name) || !is_untouched() || !old.has_the_name(folder, name) {
        return Ok(false);
    }
    match fresh.exchange(name) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(VaultError::at(REPLACE, folder.note(name))(errno)),
    }
    if fresh.displaced() != Some(identity(&old.stat)) || !is_untouched() {
        put_back(folder, name, &fresh, ours)?;
        return Ok(false);
    }
    // From here on our version is the note.
    drop(ours);
    let synced = fresh.sync();
    // A process that looked up the old file before the exchange has opened it by this time.
    if synced.is_ok() && is_untouched() {
        return fresh.remove_displaced().map(|()| true);
    }
    keep_both(folder, name, &fresh)?;
    synced.map(|()| true)
}

/// Undoes an exchange that no other process has seen: openers of our version are still blocked.
fn put_back(
    folder: &LockedFolder,
    name: &str,
    fresh: &Fresh<'_>,
    ours: Option<Lease<'_>>,
) -> Result<(), VaultError> {
    match fresh.exchange(name) {
        Ok(()) if fresh.is_itself() => match ours.as_ref().map_or(Waiting::Nobody, Lease::waiting) {
            Waiting::Nobody => Ok(()),
            Waiting::Reader => pretend(folder, name, fresh),
            // The blocked process will write into this file, so it is kept under another name.
            Waiting::Writer => pretend(folder, name, fresh).and_then(|()| keep_both(folder, name, fresh)),
        },
        // Another program replaced our version meanwhile: its version is the newest, and may lack the changes of the
        // one we displaced.
        Ok(()) => match fresh.exchange(name) {
            Ok(()) | Err(Errno::NOENT) => keep_both(folder, name, fresh),
            Err(errno) => Err(VaultError::at(REPLACE, folder.note(name))(errno)),
        },
        // Our version was deleted or moved away; the displaced one is put back.
        Err(Errno::NOENT) => match fresh.keep_as(name) {
            Ok(()) => Ok(()),
            Err(_) => keep_both(folder, name, fresh),
        },
        Err(errno) => Err(VaultError::at(REPLACE, folder.note(name))(errno)),
    }
}

/// A process that opened our version and is blocked must read the actual note, not the version that was taken back.
fn pretend(folder: &LockedFolder, name: &str, fresh: &Fresh<'_>) -> Result<(), VaultError> {
    let Some(note) = open(folder, name)? else { return Ok(()) };
    let content = read_whole(&note, folder.note(name))?;
    let failed = |source| VaultError::Io { action: "put back", path: folder.note(name).to_string(), source };
    fresh.pretend(&content).map_err(failed)
}

/// Keeps the displaced file under a name beside the note: in case of doubt, nothing is removed.
fn keep_both(folder: &LockedFolder, name: &str, fresh: &Fresh<'_>) -> Result<(), VaultError> {
    let kept = conflict_name(name);
    fresh.keep_as(&kept).map_err(VaultError::at("keep", folder.note(&kept)))?;
    tracing::warn!(note = %folder.note(name), kept, "two programs changed a note at once; both versions are kept");
    Ok(())
}

fn conflict_name(name: &str) -> String {
    let mark = &uuid::Uuid::new_v4().simple().to_string()[..8];
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, "md"));
    let stem = &stem[..stem.floor_char_boundary(200)];
    format!("{stem} (conflict {mark}).{extension}")
}

fn open(folder: &LockedFolder, name: &str) -> Result<Option<File>, VaultError> {
    match open_beneath(folder, name, OFlags::empty()) {
        Ok(file) => regular(file, folder.note(name)).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(VaultError::at("open", folder.note(name))(errno)),
    }
}

fn stat(file: &File, folder: &LockedFolder, name: &str) -> Result<Stat, VaultError> {
    rustix::fs::fstat(file).map_err(VaultError::at("look at", folder.note(name)))
}
