//! A lock that allows one builder per template, across all processes that share the directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use agentiso_sys::files::FileError;
use tokio::sync::oneshot;

use super::key::TemplateKey;

/// Held as long as it exists; the kernel releases it if the process dies.
#[derive(Debug)]
pub(super) struct BuildLock {
    _file: File,
}

fn path_of(dir: &Path, key: &TemplateKey) -> PathBuf {
    dir.join(format!("{key}.lock"))
}

fn open(path: &Path) -> Result<File, FileError> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(FileError::at("open the lock", path))
}

impl BuildLock {
    /// Waits until no other process builds this template.
    pub(super) async fn acquire(dir: &Path, key: &TemplateKey) -> Result<Self, FileError> {
        let path = path_of(dir, key);
        let file = open(&path)?;
        let (sender, receiver) = oneshot::channel();
        // A separate thread instead of one of the runtime's, for which the runtime would wait when it ends. If the
        // caller has stopped waiting, the lock is released as soon as it is acquired.
        std::thread::spawn(move || {
            let locked = file.lock().map(|()| Self { _file: file });
            let _ = sender.send(locked);
        });
        let failed = |_| std::io::Error::other("the thread that waited for the lock ended");
        receiver.await.map_err(failed).flatten().map_err(FileError::at("lock", &path))
    }

    /// The lock, if it is free.
    pub(super) fn try_acquire(dir: &Path, key: &TemplateKey) -> Result<Option<Self>, FileError> {
        let path = path_of(dir, key);
        let file = open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(FileError::at("lock", &path)(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn second_template_builder_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let key = TemplateKey::from_dir_name(&"a".repeat(32)).unwrap();
        let first = BuildLock::acquire(dir.path(), &key).await.unwrap();
        assert!(BuildLock::try_acquire(dir.path(), &key).unwrap().is_none());
        let path = dir.path().to_owned();
        let second = tokio::spawn({
            let key = key.clone();
            async move { BuildLock::acquire(&path, &key).await }
        });
        drop(first);
        let second = tokio::time::timeout(std::time::Duration::from_secs(10), second).await.unwrap().unwrap();
        assert!(second.is_ok());
        drop(second);
        assert!(BuildLock::try_acquire(dir.path(), &key).unwrap().is_some());
    }
}
