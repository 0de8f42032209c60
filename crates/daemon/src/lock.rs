//! One daemon per state directory, and one of whatever else there must be one of.
//!
//! The lock is the kernel's: it ends with the process, however that ends. The pid inside the file is for people
//! and for the message to whoever comes second. The descriptor is close-on-exec (Rust's default), so a machine
//! that outlives the daemon does not hold it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// A pid and a newline; more is not read.
const MAX_PID_TEXT: u64 = 32;

#[derive(Debug, Error)]
pub enum LockError {
    #[error("another {holder}{} holds {path}", pid_words(.pid))]
    Held {
        /// What kind of process it is.
        holder: &'static str,
        path: PathBuf,
        pid: Option<u32>,
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

/// Held until it is dropped.
#[derive(Debug)]
pub struct InstanceLock {
    _file: File,
}

impl InstanceLock {
    /// `holder` is what whoever comes second is told of the first.
    pub fn acquire(path: &Path, holder: &'static str) -> Result<Self, LockError> {
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
                return Err(LockError::Held { holder, path: path.into(), pid: pid_in(&mut file) });
            }
            Err(error) => return Err(failed(error.into())),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

fn pid_in(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(MAX_PID_TEXT).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The pid of the daemon that runs on this state, if one does.
pub fn running_daemon(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => pid_in(&mut file),
        Ok(()) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_daemon_is_told_who_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentiso.lock");
        let held = InstanceLock::acquire(&path, "daemon").unwrap();
        let error = InstanceLock::acquire(&path, "daemon").unwrap_err();
        assert!(
            error.to_string().contains(&format!("another daemon (pid {})", std::process::id())),
            "{error}"
        );
        assert_eq!(running_daemon(&path), Some(std::process::id()));
        drop(held);
        assert_eq!(running_daemon(&path), None);
        assert!(InstanceLock::acquire(&path, "daemon").is_ok());
    }

    #[test]
    fn the_lock_is_not_inherited_by_programs_that_outlive_us() {
        let dir = tempfile::tempdir().unwrap();
        let lock = InstanceLock::acquire(&dir.path().join("agentiso.lock"), "daemon").unwrap();
        let flags = rustix::io::fcntl_getfd(&lock._file).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
