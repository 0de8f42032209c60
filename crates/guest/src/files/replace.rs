//! Replaces a file in one step: a temporary file beside it, then a rename.
//!
//! What is at the path is the old file or the new one, never half of either; a replacement that is not finished
//! leaves nothing behind. What a caller is told has been written outlives a crash of the machine.

use std::fs;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fsync, open};
use rustix::io::Errno;

use super::error::{At as _, FileError};

/// Symbolic links followed at the end of a path, as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// Attempts to find an unused name; a second one is hardly ever needed.
const MAX_NAMES: usize = 16;

const DEFAULT_MODE: u32 = 0o644;

/// A file that is being written and takes its place when it is complete.
#[derive(Debug)]
pub(super) struct Replacement {
    file: File,
    /// Removed on drop unless it was renamed.
    temporary: Temporary,
    target: PathBuf,
    mode: u32,
    owner: Option<(u32, u32)>,
}

#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    renamed: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // If it cannot be removed, its directory was: then it is gone too.
            drop(fs::remove_file(&self.path));
        }
    }
}

impl Replacement {
    /// Begins to replace the file at `path`, or what a symbolic link there points to. Without a `mode` it keeps the
    /// mode of the file that it replaces.
    pub(super) fn begin(path: &Path, mode: Option<u32>) -> Result<Self, FileError> {
        let target = resolve(path)?;
        let (old_mode, owner) = match fs::symlink_metadata(&target) {
            Ok(old) if old.is_dir() => {
                return Err(FileError::IsDirectory { path: path.display().to_string() });
            }
            // A rename would put a file in the place of a device.
            Ok(old) if !old.is_file() => {
                return Err(FileError::NotRegular { path: path.display().to_string() });
            }
            Ok(old) => (Some(old.mode() & 0o7777), Some((old.uid(), old.gid()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, None),
            Err(error) => return Err(error).at(path),
        };
        let (file, temporary) = create_beside(&target)?;
        Ok(Self { file, temporary, target, mode: mode.or(old_mode).unwrap_or(DEFAULT_MODE), owner })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).at(&self.target)
    }

    /// Puts the file in its place, for good.
    pub(super) fn commit(self) -> Result<(), FileError> {
        self.take_on()?;
        // Before it has its name: after a crash the name must not lead to a file without its content.
        self.file.sync_all().at(&self.target)?;
        sync_parent(&self.rename()?)
    }

    /// Takes on the owner and the mode.
    fn take_on(&self) -> Result<(), FileError> {
        if let Some((uid, gid)) = self.owner {
            fchown(&self.file, Some(uid), Some(gid)).at(&self.target)?;
        }
        // After the owner, because a change of the owner clears the set-user-id bit.
        self.file.set_permissions(Permissions::from_mode(self.mode)).at(&self.target)
    }

    /// Returns its path.
    fn rename(mut self) -> Result<PathBuf, FileError> {
        fs::rename(&self.temporary.path, &self.target).at(&self.target)?;
        self.temporary.renamed = true;
        Ok(self.target)
    }
}

/// Replaces the file at `path` by these bytes, for the time that the machine runs: whoever starts it again writes it again.
pub(crate) fn replace_file(path: &Path, mode: Option<u32>, content: &[u8]) -> Result<(), FileError> {
    let mut replacement = Replacement::begin(path, mode)?;
    replacement.write(content)?;
    replacement.take_on()?;
    replacement.rename().map(drop)
}

/// Makes sure that a name stays in its directory.
pub(super) fn sync_parent(target: &Path) -> Result<(), FileError> {
    let parent = target.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match open(parent, flags, Mode::empty()).and_then(fsync) {
        // A file system that keeps nothing has nothing to make sure of.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error).at(target),
    }
}

/// Follows symbolic links at the end of the path; the last one may lead to nothing.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, FileError> {
    let mut target = path.to_owned();
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(FileError::IsDirectory { path: path.display().to_string() });
    }
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            // A relative link is relative to the directory that it is in; `join` takes an absolute one as it is.
            Ok(next) => target = target.parent().unwrap_or(Path::new("/")).join(next),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(target);
            }
            Err(error) => return Err(error).at(path),
        }
    }
    Err(Errno::LOOP).at(path)
}

fn create_beside(target: &Path) -> Result<(File, Temporary), FileError> {
    let directory = target.parent().unwrap_or(Path::new("/"));
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..MAX_NAMES {
        let path = directory.join(format!(".agentiso-{:016x}.tmp", random().at(target)?));
        // Readable by nobody else until it has its own mode.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((file, Temporary { path, renamed: false })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error).at(target),
        }
    }
    Err(last).at(target)
}

pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
