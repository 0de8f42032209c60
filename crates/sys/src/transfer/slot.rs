//! Destinations of files and directories from a guest. If a slot is dropped before it is committed, nothing is left.

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

/// The permission bits that are kept. Set-user-id, set-group-id and sticky bits are not, because a guest's root has no
/// rights on the host.
const PLAIN_MODES: u32 = 0o777;

/// A file that is being written.
#[derive(Debug)]
pub struct FileSlot {
    file: File,
    destination: Destination,
}

/// A directory that is being filled.
#[derive(Debug)]
pub struct TreeSlot {
    directory: OwnedFd,
    destination: Destination,
}

impl FileSlot {
    pub(super) fn make(parent: OwnedFd, name: OsString, given: &Path) -> Result<Self, TransferError> {
        let destination = Destination::new(parent, name, given);
        match destination.kind()? {
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
        let file = openat(&destination.parent, &destination.temporary, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| destination.error(error))?;
        Ok(Self { file: File::from(file), destination })
    }

    /// The file to write the content to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Renames the file to its final path, with the permissions it has in the guest.
    pub fn commit(mut self, mode: u32) -> Result<(), TransferError> {
        fchmod(&self.file, Mode::from_raw_mode(mode & PLAIN_MODES))
            .map_err(|error| self.destination.error(error))?;
        self.destination.sync(|| fsync(&self.file))?;
        self.destination.publish()
    }
}

impl TreeSlot {
    pub(super) fn make(parent: OwnedFd, name: OsString, given: &Path) -> Result<Self, TransferError> {
        let destination = Destination::new(parent, name, given);
        match destination.kind()? {
            None => {}
            Some(FileType::Directory) if destination.is_empty()? => {}
            Some(_) => return Err(TransferError::Exists { path: given.to_owned() }),
        }
        mkdirat(&destination.parent, &destination.temporary, Mode::RWXU)
            .map_err(|error| destination.error(error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(&destination.parent, &destination.temporary, flags, Mode::empty())
            .map_err(|error| destination.error(error))?;
        Ok(Self { directory, destination })
    }

    /// Unpacks an untrusted archive.
    pub fn fill(&self, archive: impl Read) -> Result<Unpacked, TransferError> {
        unpack(archive, self.directory.as_fd(), PLAIN_MODES, Links::Inside)
            .map_err(|source| TransferError::Tree { path: self.destination.given.clone(), source })
    }

    /// Renames the directory to its final path, once its content would survive a crash of the host.
    pub fn commit(mut self) -> Result<(), TransferError> {
        // One call syncs what may be a million files.
        self.destination.sync(|| syncfs(&self.directory))?;
        self.destination.publish()
    }
}

/// A final path, and the temporary name until then.
#[derive(Debug)]
struct Destination {
    parent: OwnedFd,
    name: OsString,
    temporary: CString,
    given: PathBuf,
    committed: bool,
}

impl Destination {
    fn new(parent: OwnedFd, name: OsString, given: &Path) -> Self {
        // The name has no zero byte, so this cannot fail.
        let temporary = format!(".agentiso-{}.tmp", uuid::Uuid::new_v4().simple());
        let temporary = CString::new(temporary).unwrap_or_default();
        Self { parent, name, temporary, given: given.to_owned(), committed: false }
    }

    /// Makes the content durable. If that fails, the final path is not touched.
    fn sync(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), TransferError> {
        let synced = fault::write("transfer.sync").and_then(|()| Ok(sync()?));
        synced.map_err(|error| TransferError::io(&self.given, error))
    }

    fn error(&self, error: Errno) -> TransferError {
        TransferError::io(&self.given, error)
    }

    /// The type of the file that is at the final path.
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

    /// Renames the temporary name to the final one. A rename replaces a link itself and not its target, and only empty
    /// directories.
    fn publish(&mut self) -> Result<(), TransferError> {
        renameat(&self.parent, &self.temporary, &self.parent, &self.name).map_err(|error| match error {
            Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::ISDIR => {
                TransferError::Exists { path: self.given.clone() }
            }
            other => self.error(other),
        })?;
        self.committed = true;
        fsync(&self.parent).map_err(|error| self.error(error))
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        if unlinkat(&self.parent, &self.temporary, AtFlags::empty()) == Err(Errno::ISDIR) {
            remove_tree(&self.parent, &self.temporary);
        }
    }
}

/// Removes a directory of ours with its content. Anything that cannot be removed stays under a hidden name with our
/// prefix.
fn remove_tree(parent: &OwnedFd, name: &CStr) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = openat(parent, name, flags, Mode::empty()) else { return };
    // The directory may already have the permissions it has in the guest.
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
