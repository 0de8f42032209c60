//! The transfer directory, and the sources and destinations in it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};

use super::error::TransferError;
use super::slot::{FileSlot, TreeSlot};
use crate::files::{FileError, make_private_dir};

/// The directory that files are transferred from and to.
#[derive(Debug)]
pub struct TransferDir {
    directory: OwnedFd,
    path: PathBuf,
}

/// A file or directory to send.
#[derive(Debug)]
pub enum Source {
    File(SourceFile),
    Directory(OwnedFd),
}

#[derive(Debug)]
pub struct SourceFile {
    pub file: File,
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

impl TransferDir {
    /// Opens the directory, and makes it if it is missing.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        make_private_dir(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())
            .map_err(|error| FileError::at("open the directory", path)(error.into()))?;
        Ok(Self { directory, path: path.to_owned() })
    }

    /// Opens a file or directory to send. An absolute path must begin with the transfer directory's own; any other is
    /// relative to it.
    pub fn source(&self, given: &Path) -> Result<Source, TransferError> {
        let relative = self.relative(given)?;
        // Opening a pipe must not block. The type is checked afterwards.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let found = self.beneath(given, &relative, flags)?;
        let status = fstat(&found).map_err(|error| TransferError::io(given, error))?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Ok(Source::File(SourceFile {
                file: File::from(found),
                size: u64::try_from(status.st_size).unwrap_or(0),
                mode: status.st_mode & 0o7777,
            })),
            FileType::Directory => Ok(Source::Directory(found)),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(TransferError::Special { path: given.to_owned() }),
        }
    }

    /// A file to write at a path, whose directory must exist.
    pub fn file_slot(&self, given: &Path) -> Result<FileSlot, TransferError> {
        let (parent, name) = self.parent(given)?;
        FileSlot::make(parent, name, given)
    }

    /// A directory to make at a path, where nothing or an empty directory may be.
    pub fn tree_slot(&self, given: &Path) -> Result<TreeSlot, TransferError> {
        let (parent, name) = self.parent(given)?;
        TreeSlot::make(parent, name, given)
    }

    /// The parent directory of a path, and the last name of the path.
    fn parent(&self, given: &Path) -> Result<(OwnedFd, OsString), TransferError> {
        let relative = self.relative(given)?;
        // `Path` drops a trailing dot, which names the directory itself.
        let name = match (relative.file_name(), given.as_os_str().as_encoded_bytes()) {
            (Some(name), bytes) if !bytes.ends_with(b"/.") => name.to_owned(),
            (Some(_) | None, _) => return Err(TransferError::BadName { path: given.to_owned() }),
        };
        let parent = match relative.parent() {
            None => Path::new("."),
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self.beneath(given, parent, flags) {
            Ok(parent) => Ok((parent, name)),
            Err(TransferError::Missing { path }) => Err(TransferError::NoParent { path }),
            Err(error) => Err(error),
        }
    }

    fn beneath(&self, given: &Path, relative: &Path, flags: OFlags) -> Result<OwnedFd, TransferError> {
        // No link is followed, not even one that stays inside, because a guest may have made it.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(&self.directory, relative, flags, Mode::empty(), resolve)
            .map_err(|error| TransferError::resolving(given, &self.path, error))
    }

    fn relative(&self, given: &Path) -> Result<PathBuf, TransferError> {
        if given.as_os_str().is_empty() || given.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(TransferError::BadName { path: given.to_owned() });
        }
        if !given.is_absolute() {
            return Ok(given.to_owned());
        }
        let outside = || TransferError::Outside { path: given.to_owned(), root: self.path.clone() };
        // The transfer directory may be reached through a link; both its names are accepted.
        let real = self.path.canonicalize().map_err(|error| TransferError::io(&self.path, error))?;
        let below = given.strip_prefix(&self.path).or_else(|_| given.strip_prefix(&real));
        let below = below.map_err(|_| outside())?;
        Ok(if below.as_os_str() == OsStr::new("") { PathBuf::from(".") } else { below.to_owned() })
    }
}
