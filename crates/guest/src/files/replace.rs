//! Replaces a file in one step: a temporary file beside it, then a rename.
//!
//! The path always leads to the complete old or the complete new file. A replacement that is not finished leaves
//! nothing behind. A write that was reported as successful survives a crash of the VM.

use std::fs;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fsync, open};
use rustix::io::Errno;

use super::error::{FileError, WithPath as _};

/// Symbolic links that are followed at the end of a path; the kernel has the same limit.
const MAX_LINKS: usize = 40;

/// Attempts to find an unused name. A second one is hardly ever needed.
const MAX_NAMES: usize = 16;

const DEFAULT_MODE: u32 = 0o644;

/// A temporary file that replaces the target when it is complete.
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
            // It fails only if its directory was removed; then the file is gone too.
            drop(fs::remove_file(&self.path));
        }
    }
}

impl Replacement {
    /// Begins to replace the file at `path`, or the target of a symbolic link there. Without a `mode`, the mode of the
    /// replaced file is kept.
    pub(super) fn begin(path: &Path, mode: Option<u32>) -> Result<Self, FileError> {
        let target = resolve(path)?;
        let (old_mode, owner) = match fs::symlink_metadata(&target) {
            Ok(old) if old.is_dir() => {
                return Err(FileError::IsDirectory { path: path.display().to_string() });
            }
            // A rename would replace a device by a file.
            Ok(old) if !old.is_file() => {
                return Err(FileError::NotRegular { path: path.display().to_string() });
            }
            Ok(old) => (Some(old.mode() & 0o7777), Some((old.uid(), old.gid()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, None),
            Err(error) => return Err(error).with_path(path),
        };
        let (file, temporary) = create_beside(&target)?;
        Ok(Self { file, temporary, target, mode: mode.or(old_mode).unwrap_or(DEFAULT_MODE), owner })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).with_path(&self.target)
    }

    /// Renames the file to its target, durably.
    pub(super) fn commit(self) -> Result<(), FileError> {
        self.set_owner_and_mode()?;
        // Synced before the rename: after a crash the name must not lead to a file without its content.
        self.file.sync_all().with_path(&self.target)?;
        sync_parent(&self.rename()?)
    }

    /// Sets the owner and the mode.
    fn set_owner_and_mode(&self) -> Result<(), FileError> {
        if let Some((uid, gid)) = self.owner {
            fchown(&self.file, Some(uid), Some(gid)).with_path(&self.target)?;
        }
        // Set after the owner, because a change of the owner clears the set-user-id bit.
        self.file.set_permissions(Permissions::from_mode(self.mode)).with_path(&self.target)
    }

    /// Renames the temporary file to the target. Returns the target's path.
    fn rename(mut self) -> Result<PathBuf, FileError> {
        fs::rename(&self.temporary.path, &self.target).with_path(&self.target)?;
        self.temporary.renamed = true;
        Ok(self.target)
    }
}

/// Replaces the file at `path` by these bytes, without syncing: the file is written again at the next start of the VM.
pub(crate) fn replace_file(path: &Path, mode: Option<u32>, content: &[u8]) -> Result<(), FileError> {
    let mut replacement = Replacement::begin(path, mode)?;
    replacement.write(content)?;
    replacement.set_owner_and_mode()?;
    replacement.rename().map(drop)
}

/// Syncs the parent directory, so that a new name survives a crash.
pub(super) fn sync_parent(target: &Path) -> Result<(), FileError> {
    let parent = target.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match open(parent, flags, Mode::empty()).and_then(fsync) {
        // A file system without storage cannot be synced.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(error).with_path(target),
    }
}

/// Follows symbolic links at the end of the path. The target of the last one need not exist.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, FileError> {
    let mut target = path.to_owned();
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(FileError::IsDirectory { path: path.display().to_string() });
    }
    for _ in 0..MAX_LINKS {
        match fs::read_link(&target) {
            // A relative link is relative to its directory; `join` returns an absolute one unchanged.
            Ok(next) => target = target.parent().unwrap_or(Path::new("/")).join(next),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(target);
            }
            Err(error) => return Err(error).with_path(path),
        }
    }
    Err(Errno::LOOP).with_path(path)
}

fn create_beside(target: &Path) -> Result<(File, Temporary), FileError> {
    let directory = target.parent().unwrap_or(Path::new("/"));
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..MAX_NAMES {
        let path = directory.join(format!(".agentiso-{:016x}.tmp", random().with_path(target)?));
        // Readable by the owner alone until its mode is set.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((file, Temporary { path, renamed: false })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error).with_path(target),
        }
    }
    Err(last).with_path(target)
}

pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
