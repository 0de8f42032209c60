//! A folder that this program alone changes for a while.
//!
//! The lock is the kernel's advisory one on the directory itself: it serialises threads and processes alike and leaves
//! no file behind. Programs that know nothing of it are what [`crate::replace`] is for.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation};
use rustix::io::Errno;

use crate::error::VaultError;
use crate::path::{FolderPath, NotePath};
use crate::root::Root;

/// How long a call waits for others that write in the same folder. Clients give most calls 30 seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two attempts. The holder of a lock has nothing to tell us with, and is done in about this time.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct LockedFolder {
    folder: OwnedFd,
    path: FolderPath,
}

impl LockedFolder {
    pub(crate) fn existing(root: &Root, path: &FolderPath) -> Result<Self, VaultError> {
        Self::lock(root.folder(path)?, path)
    }

    fn lock(folder: OwnedFd, path: &FolderPath) -> Result<Self, VaultError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { folder, path: path.clone() }),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                    std::thread::park_timeout(PAUSE);
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {
                    return Err(VaultError::Busy { path: path.to_string() });
                }
                Err(errno) => return Err(VaultError::at("lock", path)(errno)),
            }
        }
    }

    /// Locks a folder that is made if it does not exist, and removed again if `work` fails and left it empty.
    pub(crate) fn made<T, E: From<VaultError>>(
        root: &Root,
        path: &FolderPath,
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let (folder, made) = root.make_folder(path)?;
        let done = Self::lock(folder, path).map_err(E::from).and_then(|locked| work(&locked));
        if done.is_err() {
            root.unmake(&made);
        }
        done
    }

    pub(crate) fn note(&self, name: &str) -> NotePath {
        self.path.note(name)
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), VaultError> {
        rustix::fs::unlinkat(&self.folder, name, AtFlags::empty())
            .and_then(|()| rustix::fs::fsync(&self.folder))
            .map_err(VaultError::at("delete", self.note(name)))
    }
}

impl AsFd for LockedFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}
