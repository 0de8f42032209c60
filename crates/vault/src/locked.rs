//! A folder that is locked against other agentiso processes and threads.
//!
//! The lock is the kernel's advisory lock on the directory itself: it serialises threads and processes and leaves no
//! file behind. [`crate::replace`] handles programs that ignore it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation};
use rustix::io::Errno;

use crate::error::VaultError;
use crate::path::{FolderPath, NotePath};
use crate::root::Root;

/// The longest wait for other writers of the same folder. Clients give most calls 30 seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// The pause between two attempts. The holder of a lock cannot notify us, and takes about this long.
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

    /// Locks a folder for `work`. A missing folder is made, and removed again if `work` fails and leaves it empty.
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
