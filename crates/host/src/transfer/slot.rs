//! What comes from a guest, until it takes its place. Dropped before that, it leaves nothing.

use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use agentiso_tree::{Links, Unpacked, unpack};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fchmod, fsync, mkdirat, openat, renameat, statat, syncfs, unlinkat,
};
use rustix::io::Errno;

use super::error::TransferError;
use crate::fault;

/// No set-user-id, set-group-id and sticky bits: a guest's root is nobody here.
const PLAIN_MODES: u32 = 0o777;

/// A file that is being written.
#[derive(Debug)]
pub struct FileSlot {
    file: File,
    place: Place,
}

/// A directory that is being filled.
#[derive(Debug)]
pub struct TreeSlot {
    directory: OwnedFd,
    place: Place,
}

impl FileSlot {
    pub(super) fn make(parent: OwnedFd, name: OsString, given: &Path) -> Result<Self, TransferError> {
        let place = Place::new(parent, name, given);
        match place.kind()? {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Symlink) => return Err(TransferError::Link { path: given.to_owned() }),
            Some(FileType::Directory) => return Err(TransferError::Exists { path: given.to_owned() }),
            Some(
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown,
            ) => return Err(TransferError::Special { path: given.to_owned() }),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&place.parent, &place.temporary, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| place.error(error))?;
        Ok(Self { file: File::from(file), place })
    }

    /// Where the content goes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Puts the file in its place, with the permissions it has in the guest.
    pub fn commit(mut self, mode: u32) -> Result<(), TransferError> {
        fchmod(&self.file, Mode::from_raw_mode(mode & PLAIN_MODES))
            .map_err(|error| self.place.error(error))?;
        self.place.sync(|| fsync(&self.file))?;
        self.place.take()
    }
}

impl TreeSlot {
    pub(super) fn make(parent: OwnedFd, name: OsString, given: &Path) -> Result<Self, TransferError> {
        let place = Place::new(parent, name, given);
        match place.kind()? {
            None => {}
            Some(FileType::Directory) if place.is_empty()? => {}
            Some(_) => return Err(TransferError::Exists { path: given.to_owned() }),
        }
        mkdirat(&place.parent, &place.temporary, Mode::RWXU).map_err(|error| place.error(error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(&place.parent, &place.temporary, flags, Mode::empty())
            .map_err(|error| place.error(error))?;
        Ok(Self { directory, place })
    }

    /// Unpacks an archive that nobody vouches for.
    pub fn fill(&self, archive: impl Read) -> Result<Unpacked, TransferError> {
        unpack(archive, self.directory.as_fd(), PLAIN_MODES, Links::Inside)
            .map_err(|source| TransferError::Tree { path: self.place.given.clone(), source })
    }

    /// Puts the directory in its place, once all that is in it would survive a crash of the host.
    pub fn commit(mut self) -> Result<(), TransferError> {
        // One call for what may be a million files.
        self.place.sync(|| syncfs(&self.directory))?;
        self.place.take()
    }
}

/// Where something is to be, and where it is until then.
#[derive(Debug)]
struct Place {
    parent: OwnedFd,
    name: OsString,
    temporary: CString,
    given: PathBuf,
    taken: bool,
}

impl Place {
    fn new(parent: OwnedFd, name: OsString, given: &Path) -> Self {
        // A name without a zero byte.
        let temporary = format!(".agentiso-{}.tmp", uuid::Uuid::new_v4().simple());
        let temporary = CString::new(temporary).unwrap_or_default();
        Self { parent, name, temporary, given: given.to_owned(), taken: false }
    }

    /// What does not survive a crash of the host does not take its place.
    fn sync(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), TransferError> {
        let synced = fault::write("transfer.sync").and_then(|()| Ok(sync()?));
        synced.map_err(|error| TransferError::io(&self.given, error))
    }

    fn error(&self, error: Errno) -> TransferError {
        TransferError::io(&self.given, error)
    }

    /// What is there at present.
    fn kind(&self) -> Result<Option<FileType>, TransferError> {
        match statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(FileType::from_raw_mode(status.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    fn is_empty(&self) -> Result<bool, TransferError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || Dir::new(openat(&self.parent, &self.name, flags, Mode::empty())?);
        let mut entries = open().map_err(|error| self.error(error))?;
        let mut other = entries
            .by_ref()
            .filter_map(Result::ok)
            .filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."));
        Ok(other.next().is_none())
    }

    /// A rename replaces a link and not what it leads to, and of directories only empty ones.
    fn take(&mut self) -> Result<(), TransferError> {
        renameat(&self.parent, &self.temporary, &self.parent, &self.name).map_err(|error| match error {
            Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR => {
                TransferError::Exists { path: self.given.clone() }
            }
            other => self.error(other),
        })?;
        self.taken = true;
        fsync(&self.parent).map_err(|error| self.error(error))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        if unlinkat(&self.parent, &self.temporary, AtFlags::empty()) == Err(Errno::ISDIR) {
            remove_tree(&self.parent, &self.temporary);
        }
    }
}

/// Removes a directory of ours and what is in it. What cannot be removed is hidden and has a name that says whose it is.
fn remove_tree(parent: &OwnedFd, name: &CStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = openat(parent, name, flags, Mode::empty()) else { return };
    // It may have got the permissions it has in the guest already.
    let _ = fchmod(&directory, Mode::RWXU);
    if let Ok(entries) = Dir::read_from(&directory) {
        for entry in entries.filter_map(Result::ok) {
            let below = entry.file_name();
            if matches!(below.to_bytes(), b"." | b"..") {
                continue;
            }
            if unlinkat(&directory, below, AtFlags::empty()).is_err() {
                remove_tree(&directory, below);
            }
        }
    }
    let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
}
