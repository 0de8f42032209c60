//! The vault's directory as a descriptor. Everything is opened beneath it with `openat2` and RESOLVE_BENEATH, so a path
//! cannot lead out of it: not by `..`, not by a symbolic link, and not by one that appears while the path is resolved.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::error::VaultError;
use crate::path::{FolderPath, NotePath};

/// The largest note in bytes: more than a person writes, and small enough for memory.
pub const MAX_NOTE: u64 = 10 * 1024 * 1024;

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The number of retries when the kernel reports a race while it resolves a path, at first without a pause. The same
/// applies to a note that is just being exchanged.
const MAX_RACES: usize = 1000;
const RACES_WITHOUT_PAUSE: usize = 20;
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Root(OwnedFd);

impl Root {
    pub(crate) fn open(path: &Path) -> Result<Self, VaultError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty());
        root.map(Self).map_err(|errno| VaultError::Root { path: path.to_owned(), source: errno.into() })
    }

    pub(crate) fn folder(&self, path: &FolderPath) -> Result<OwnedFd, VaultError> {
        let name = if path.is_root() { "." } else { path.as_str() };
        open_beneath(&self.0, name, OFlags::DIRECTORY).map_err(VaultError::at("open", path))
    }

    /// Opens a folder and makes missing parents. Returns the folders that it made, the outermost first.
    pub(crate) fn make_folder(&self, path: &FolderPath) -> Result<(OwnedFd, Vec<FolderPath>), VaultError> {
        let mut at = FolderPath::root();
        let mut folder = self.folder(&at)?;
        let mut made = Vec::new();
        for name in path.names() {
            at = at.folder(name);
            let step = match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    made.push(at.clone());
                    rustix::fs::fsync(&folder)
                }
                Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(errno),
            };
            let opened = step.and_then(|()| open_beneath(&folder, name, OFlags::DIRECTORY));
            folder = match opened {
                Ok(opened) => opened,
                Err(errno) => {
                    self.unmake(&made);
                    return Err(VaultError::at("make the folder", &at)(errno));
                }
            };
        }
        Ok((folder, made))
    }

    /// Removes folders that were made in vain. A folder that is used meanwhile is not empty and stays.
    pub(crate) fn unmake(&self, made: &[FolderPath]) {
        for path in made.iter().rev() {
            let removed = open_parent(self, path)
                .and_then(|(parent, name)| rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR));
            if removed.is_err() {
                return;
            }
        }
    }

    pub(crate) fn note(&self, path: &NotePath) -> Result<File, VaultError> {
        let file = open_beneath(&self.0, &path.to_string(), OFlags::empty());
        regular(file.map_err(VaultError::at("open", path))?, path)
    }
}

fn open_parent<'a>(root: &Root, path: &'a FolderPath) -> Result<(OwnedFd, &'a str), Errno> {
    let (parent, name) = path.as_str().rsplit_once('/').unwrap_or((".", path.as_str()));
    Ok((open_beneath(&root.0, parent, OFlags::DIRECTORY)?, name))
}

/// Opens a path for reading. It never blocks, even if the path is a pipe.
pub(crate) fn open_beneath(folder: impl AsFd, path: &str, extra: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | extra;
    let mut races = 0;
    loop {
        match rustix::fs::openat2(folder.as_fd(), path, flags, Mode::empty(), BENEATH) {
            Err(Errno::AGAIN | Errno::INTR) if races < MAX_RACES => {
                races += 1;
                if races > RACES_WITHOUT_PAUSE {
                    std::thread::park_timeout(PAUSE);
                }
            }
            opened => return opened,
        }
    }
}

/// The file behind a descriptor, if it is an ordinary one.
pub(crate) fn regular(file: OwnedFd, path: impl ToString) -> Result<File, VaultError> {
    let stat = rustix::fs::fstat(&file).map_err(VaultError::at("look at", path.to_string()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(File::from(file)),
        FileType::Directory => Err(VaultError::IsFolder { path: path.to_string() }),
        FileType::Symlink => Err(VaultError::Link { path: path.to_string() }),
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(VaultError::NotRegular { path: path.to_string() }),
    }
}

/// Reads a whole file, unless it is larger than a note may be.
pub(crate) fn read_whole(mut file: &File, path: impl ToString) -> Result<Vec<u8>, VaultError> {
    let size = rustix::fs::fstat(file).map(|stat| size_of(&stat)).unwrap_or(0);
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(MAX_NOTE)).unwrap_or(0) + 1);
    let read = file.by_ref().take(MAX_NOTE + 1).read_to_end(&mut bytes);
    read.map_err(|source| VaultError::Io { action: "read", path: path.to_string(), source })?;
    if bytes.len() as u64 > MAX_NOTE {
        let size = size.max(bytes.len() as u64);
        return Err(VaultError::TooLarge { path: path.to_string(), size, max: MAX_NOTE });
    }
    Ok(bytes)
}

pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// The identity of a file: device and inode.
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
