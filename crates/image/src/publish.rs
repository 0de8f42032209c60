//! Publishes an entry (an image, a kernel, an initramfs): it is built under a lock in a working directory beside its
//! final path, synced, and renamed.
//!
//! ```text
//! lock @lock.<name> ── another process finished it meanwhile? ─▶ use that
//!        │ no
//!        ▼
//! @build.<name>/ (leftovers removed first) ── fsync ── rename ─▶ <name>
//! ```
//!
//! Entry names never contain `@`, so working files cannot be taken for entries.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_sys::files::{self, FileContext, FileError};
use rustix::fs::{CWD, RenameFlags};
use thiserror::Error;

use crate::progress::{Phase, Reporter, enter};

/// A full image build takes minutes; a longer wait for the lock fails.
const LOCK_LIMIT: Duration = Duration::from_secs(3600);
/// A lock held by another process gives no event that a task could await, and a thread blocked in `flock` could not be
/// cancelled, so the lock is tried at this interval.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// The programs of a build that was killed may still write for a moment while they are being ended.
const REMOVE_TRIES: usize = 100;

#[derive(Debug, Error)]
pub enum PublishError {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error("another process has been building {name:?} for over an hour")]
    LockTimeout { name: String },
    #[error("{path} has a file system mounted inside; unmount it, then run this again")]
    Mounted { path: PathBuf },
    #[error("not enough space in {path}: {available_mib} MiB free, about {needed_mib} MiB needed")]
    NotEnoughSpace { path: PathBuf, available_mib: u64, needed_mib: u64 },
}

/// The right to build one entry. Held until dropped; the kernel releases it when the process dies.
#[derive(Debug)]
pub(crate) struct Slot {
    parent: PathBuf,
    name: String,
    _lock: File,
}

impl Slot {
    /// Waits for the right to build `name` in `parent`.
    pub(crate) async fn acquire(
        parent: &Path,
        name: &str,
        report: Reporter<'_>,
    ) -> Result<Self, PublishError> {
        // apt and mmdebstrap run in other directories than this process.
        let parent = &std::path::absolute(parent).at("find", parent)?;
        fs::create_dir_all(parent).at("create", parent)?;
        let path = parent.join(format!("@lock.{name}"));
        let file = File::options().create(true).truncate(false).write(true).open(&path).at("open", &path)?;
        let waiting = async {
            let mut told = false;
            loop {
                match file.try_lock() {
                    Ok(()) => return Ok(()),
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Error(source)) => return Err(FileError::new("lock", &path, source)),
                }
                if !told {
                    enter(report, Phase::Waiting);
                    told = true;
                }
                tokio::time::sleep(LOCK_INTERVAL).await;
            }
        };
        match tokio::time::timeout(LOCK_LIMIT, waiting).await {
            Ok(result) => result?,
            Err(_) => return Err(PublishError::LockTimeout { name: name.to_owned() }),
        }
        Ok(Self { parent: parent.to_owned(), name: name.to_owned(), _lock: file })
    }

    pub(crate) fn destination(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// An empty working directory, on the same file system as the destination.
    pub(crate) fn working_dir(&self) -> Result<PathBuf, PublishError> {
        let path = self.parent.join(format!("@build.{}", self.name));
        self.discard_working_dir()?;
        create_private_dir(&path)?;
        Ok(path)
    }

    /// Removes the leftovers of an interrupted or failed build.
    pub(crate) fn discard_working_dir(&self) -> Result<(), PublishError> {
        for path in [
            self.parent.join(format!("@build.{}", self.name)),
            self.parent.join(format!("@old.{}", self.name)),
        ] {
            remove_tree(&path)?;
        }
        Ok(())
    }

    /// Cleans up after a build. The build's own error takes precedence over one about leftovers.
    pub(crate) fn conclude<T, E: From<PublishError>>(&self, made: Result<T, E>) -> Result<T, E> {
        let cleaned = self.discard_working_dir();
        let made = made?;
        cleaned?;
        Ok(made)
    }

    /// Makes `ready`, a file or directory inside the working directory, the entry. An older entry is replaced in
    /// one step.
    pub(crate) fn publish(&self, ready: &Path) -> Result<PathBuf, PublishError> {
        sync_tree(ready)?;
        let destination = self.destination();
        if destination.is_dir() {
            rustix::fs::renameat_with(CWD, ready, CWD, &destination, RenameFlags::EXCHANGE)
                .at("replace", &destination)?;
        } else {
            fs::rename(ready, &destination).at("publish", &destination)?;
        }
        sync(&self.parent)?;
        self.discard_working_dir()?;
        Ok(destination)
    }

    /// Removes the entry in one step, then deletes its files.
    pub(crate) fn withdraw(&self) -> Result<(), PublishError> {
        let old = self.parent.join(format!("@old.{}", self.name));
        remove_tree(&old)?;
        let destination = self.destination();
        fs::rename(&destination, &old).at("remove", &destination)?;
        sync(&self.parent)?;
        remove_tree(&old)
    }
}

/// Fails early if the space is too small for a build, rather than filling the disk.
pub(crate) fn require_space(path: &Path, needed: u64) -> Result<(), PublishError> {
    let available = files::space(path)?.free_bytes;
    if available < needed {
        return Err(PublishError::NotEnoughSpace {
            path: path.to_owned(),
            available_mib: available >> 20,
            needed_mib: needed >> 20,
        });
    }
    Ok(())
}

pub(crate) fn create_private_dir(path: &Path) -> Result<(), FileError> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path).at("create", path)
}

/// Deletes a tree, unless something is mounted in it: a bootstrap that was killed may have left a bind mount of the
/// host's own directories behind, and those must not be emptied.
pub(crate) fn remove_tree(path: &Path) -> Result<(), PublishError> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FileError::new("inspect", path, error).into()),
        Ok(metadata) if !metadata.is_dir() => return Ok(fs::remove_file(path).at("remove", path)?),
        Ok(_) => {}
    }
    let full = path.canonicalize().at("inspect", path)?;
    let mounts = Path::new("/proc/self/mountinfo");
    let table = fs::read_to_string(mounts).at("read", mounts)?;
    if mount_points(&table).any(|point| Path::new(&point).starts_with(&full)) {
        return Err(PublishError::Mounted { path: full });
    }
    for _ in 1..REMOVE_TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
            result => return Ok(result.at("remove", path)?),
        }
    }
    Ok(fs::remove_dir_all(path).at("remove", path)?)
}

/// The fifth field of mountinfo, with its octal escapes undone.
fn mount_points(table: &str) -> impl Iterator<Item = String> {
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(|field| {
        ["\\040", "\\011", "\\012", "\\134"]
            .iter()
            .zip([" ", "\t", "\n", "\\"])
            .fold(field.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
    })
}

fn sync_tree(path: &Path) -> Result<(), FileError> {
    let metadata = path.symlink_metadata().at("inspect", path)?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path).at("list", path)? {
            sync_tree(&entry.at("list", path)?.path())?;
        }
    }
    if metadata.is_symlink() { Ok(()) } else { sync(path) }
}

fn sync(path: &Path) -> Result<(), FileError> {
    File::open(path).and_then(|file| file.sync_all()).at("sync", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::silent;

    #[tokio::test]
    async fn leftovers_of_an_interrupted_build_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("@build.x/deep")).unwrap();
        fs::write(dir.path().join("@build.x/deep/half"), "half").unwrap();
        let slot = Slot::acquire(dir.path(), "x", &silent).await.unwrap();
        let work = slot.working_dir().unwrap();
        assert_eq!(fs::read_dir(work).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn publishing_replaces_the_older_entry() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["old", "new"] {
            let slot = Slot::acquire(dir.path(), "x", &silent).await.unwrap();
            let ready = slot.working_dir().unwrap().join("ready");
            fs::create_dir(&ready).unwrap();
            fs::write(ready.join(text), text).unwrap();
            slot.publish(&ready).unwrap();
        }
        let names: Vec<_> =
            fs::read_dir(dir.path().join("x")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["new"]);
        assert!(!dir.path().join("@build.x").exists());
    }

    #[tokio::test]
    async fn second_image_builder_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = Slot::acquire(dir.path(), "x", &silent).await.unwrap();
        let waited = std::sync::atomic::AtomicBool::new(false);
        let report = |progress: crate::progress::Progress| {
            assert_eq!(progress.phase, Phase::Waiting);
            waited.store(true, std::sync::atomic::Ordering::SeqCst);
        };
        let second = Slot::acquire(dir.path(), "x", &report);
        tokio::pin!(second);
        assert!(tokio::time::timeout(LOCK_INTERVAL * 3, &mut second).await.is_err(), "the lock is shared");
        drop(first);
        second.await.unwrap();
        assert!(waited.load(std::sync::atomic::Ordering::SeqCst));
    }

    #[test]
    fn escaped_mount_points_are_decoded() {
        let table = "36 35 98:0 / /mnt/a\\040b rw - ext4 /dev/x rw\n37 35 0:5 / /dev rw - tmpfs t rw\n";
        assert_eq!(mount_points(table).collect::<Vec<_>>(), ["/mnt/a b", "/dev"]);
    }

    #[test]
    fn too_little_space_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = require_space(dir.path(), u64::MAX).unwrap_err();
        assert!(error.to_string().contains("MiB needed"), "{error}");
    }
}
