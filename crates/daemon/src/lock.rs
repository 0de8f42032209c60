//! Lock files that allow one daemon per state directory, and one process of any other kind that must be alone.
//!
//! The lock is the kernel's: it ends with the process, however that ends. The pid in the file is for people and for
//! the message to a second process. The descriptor is close-on-exec (Rust's default), so a VM that outlives the
//! daemon does not hold it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// The file holds a pid or a path; more is not read.
const MAX_TEXT: u64 = 8 * 1024;

#[derive(Debug, Error)]
pub enum LockError {
    #[error("another {holder}{}{} holds {path}", pid_words(.pid), serving(.serves))]
    Held {
        /// The kind of process that holds the lock.
        holder: &'static str,
        path: PathBuf,
        pid: Option<u32>,
        /// The state file that the holder works on, if it has written that down.
        serves: Option<String>,
    },
    #[error("{path} cannot be locked: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn pid_words(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

fn serving(state_file: &Option<String>) -> String {
    state_file.as_ref().map(|path| format!(" of {path}")).unwrap_or_default()
}

/// Held until it is dropped.
#[derive(Debug)]
pub struct InstanceLock {
    _file: File,
}

impl InstanceLock {
    /// `holder` names the kind of process in the error that a second process gets.
    pub fn acquire(path: &Path, holder: &'static str) -> Result<Self, LockError> {
        Self::acquire_for(path, holder, None)
    }

    /// Also tells a second process which state file the holder works on.
    pub(crate) fn acquire_for(
        path: &Path,
        holder: &'static str,
        state_file: Option<&str>,
    ) -> Result<Self, LockError> {
        let failed = |source: io::Error| LockError::Io { path: path.into(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pid = pid_in(&text_of(&mut file));
                return Err(LockError::Held { holder, path: path.into(), pid, serves: served(path) });
            }
            Err(error) => return Err(failed(error.into())),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        if let Some(state_file) = state_file {
            let beside = owner_file(path);
            std::fs::write(&beside, format!("{state_file}\n"))
                .map_err(|source| LockError::Io { path: beside, source })?;
        }
        Ok(Self { _file: file })
    }
}

/// The file in which the holder writes its state file. The lock file itself holds only the pid, because other
/// programs read it.
fn owner_file(lock: &Path) -> PathBuf {
    lock.with_extension("owner")
}

pub(crate) fn served(lock: &Path) -> Option<String> {
    let text = text_of(&mut File::open(owner_file(lock)).ok()?);
    text.lines().next().map(str::to_owned)
}

/// A lock file that is not text is treated as empty.
fn text_of(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(MAX_TEXT).read_to_string(&mut text) {
        Ok(_) => text,
        Err(_) => String::new(),
    }
}

fn pid_in(text: &str) -> Option<u32> {
    text.lines().next()?.trim().parse().ok()
}

/// The pid of the daemon that runs on this state, if there is one.
pub fn running_daemon(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => pid_in(&text_of(&mut file)),
        Ok(()) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_daemon_learns_the_lock_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentiso.lock");
        let held = InstanceLock::acquire_for(&path, "daemon", Some("/a/state.json")).unwrap();
        let error = InstanceLock::acquire(&path, "daemon").unwrap_err();
        let expected = format!("another daemon (pid {}) of /a/state.json", std::process::id());
        assert!(error.to_string().contains(&expected), "{error}");
        assert_eq!(running_daemon(&path), Some(std::process::id()));
        drop(held);
        assert_eq!(running_daemon(&path), None);
        assert!(InstanceLock::acquire(&path, "daemon").is_ok());
    }

    #[test]
    fn instance_lock_is_close_on_exec() {
        let dir = tempfile::tempdir().unwrap();
        let lock = InstanceLock::acquire(&dir.path().join("agentiso.lock"), "daemon").unwrap();
        let flags = rustix::io::fcntl_getfd(&lock._file).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
