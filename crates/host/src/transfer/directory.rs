//! The directory, and what is found in it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};

use super::error::TransferError;
use super::slot::{FileSlot, TreeSlot};
use crate::files::{FileError, make_private_dir};

/// The directory that is open to transfers.
#[derive(Debug)]
pub struct TransferDir {
    directory: OwnedFd,
    path: PathBuf,
}

/// What is to be sent.
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
    /// Opens the directory and makes it if it is missing.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        make_private_dir(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())
            .map_err(|error| FileError::at("open the directory", path)(error.into()))?;
        Ok(Self { directory, path: path.to_owned() })
    }

    /// Opens a file or a directory to be sent. An absolute path must begin with the directory's own, any other is
    /// relative to it.
    pub fn source(&self, given: &Path) -> Result<Source, TransferError> {
        let relative = self.relative(given)?;
        // Opening a pipe must not wait, and what it is shows afterwards.
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

    /// A file to be written at a path, whose directory must exist.
    pub fn file_slot(&self, given: &Path) -> Result<FileSlot, TransferError> {
        let (parent, name) = self.parent(given)?;
        FileSlot::make(parent, name, given)
    }

    /// A directory to be made at a path, where nothing or an empty directory may be.
    pub fn tree_slot(&self, given: &Path) -> Result<TreeSlot, TransferError> {
        let (parent, name) = self.parent(given)?;
        TreeSlot::make(parent, name, given)
    }

    /// The directory of what a path names, and its name there.
    fn parent(&self, given: &Path) -> Result<(OwnedFd, OsString), TransferError> {
        let relative = self.relative(given)?;
        // `Path` forgets a dot at the end, which names the directory itself.
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
        // A link inside would still be followed by whoever made it: its maker may be a guest, whose directory this was.
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
        // The directory may be reached by a link; its other name is as good.
        let real = self.path.canonicalize().map_err(|error| TransferError::io(&self.path, error))?;
        let below = given.strip_prefix(&self.path).or_else(|_| given.strip_prefix(&real));
        let below = below.map_err(|_| outside())?;
        Ok(if below.as_os_str() == OsStr::new("") { PathBuf::from(".") } else { below.to_owned() })
    }
}
