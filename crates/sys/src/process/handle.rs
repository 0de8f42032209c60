//! Holds a process through a pidfd, which can never refer to another process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::record::{VmRecord, host_boot_id, start_time_of};
use crate::cgroup::Home;

#[derive(Debug, Error)]
pub enum ProcessError {
    #[error("process {pid} cannot be watched: {source}")]
    Watch { pid: i32, source: io::Error },
    #[error("process {pid} ended before it could be recorded")]
    Vanished { pid: i32 },
}

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It was not our child, so only its parent got the exit status.
    Unknown,
}

/// A process that we started, or found again.
#[derive(Clone, Debug)]
pub struct Process {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    record: VmRecord,
    pidfd: AsyncFd<OwnedFd>,
    /// The status can be collected only once; it is kept for later callers.
    exit: Mutex<Option<Exit>>,
    /// The cgroup that was made for it and is removed with it, if any.
    home: Option<Home>,
}

impl Process {
    /// A child that was just started and not yet waited for: its pid cannot have been reused.
    pub(super) fn of_child(pid: i32) -> Result<Self, ProcessError> {
        let pidfd = open_pidfd(pid).map_err(|source| ProcessError::Watch { pid, source })?;
        let start_time = start_time_of(pid).ok_or(ProcessError::Vanished { pid })?;
        Self::new(VmRecord { pid, start_time, boot_id: host_boot_id() }, pidfd)
    }

    /// Finds a process again. `None` if it is gone, or if its pid belongs to another process by now.
    pub fn find(record: &VmRecord) -> Result<Option<Self>, ProcessError> {
        let pid = record.pid;
        if record.boot_id != host_boot_id() {
            return Ok(None);
        }
        let pidfd = match open_pidfd(pid) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(source) => return Err(ProcessError::Watch { pid, source }),
        };
        // The pidfd is open before the start time is read: if the start time is the recorded one, the pidfd cannot
        // refer to a later process.
        if start_time_of(pid) != Some(record.start_time) {
            return Ok(None);
        }
        let process = Self::new(record.clone(), pidfd)?;
        Ok((!process.has_exited()).then_some(process))
    }

    fn new(record: VmRecord, pidfd: OwnedFd) -> Result<Self, ProcessError> {
        let pid = record.pid;
        // SAFETY: the AsyncFd owns the descriptor, which nothing else closes or replaces while it lives.
        let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }
            .map_err(|source| ProcessError::Watch { pid, source: source.into() })?;
        let home = Home::of(pid.unsigned_abs());
        Ok(Self { inner: Arc::new(Inner { record, pidfd, exit: Mutex::new(None), home }) })
    }

    pub fn record(&self) -> &VmRecord {
        &self.inner.record
    }

    pub fn pid(&self) -> i32 {
        self.inner.record.pid
    }

    /// Resolves for all waiters as soon as the process has ended.
    pub async fn wait(&self) -> Exit {
        loop {
            match self.inner.pidfd.readable().await {
                Ok(mut guard) => {
                    if self.has_exited() {
                        return self.collect();
                    }
                    guard.clear_ready();
                }
                // The runtime is shutting down, and nothing will read the result.
                Err(_) => return Exit::Unknown,
            }
        }
    }

    /// Whether it has ended, without waiting.
    pub fn has_exited(&self) -> bool {
        let mut fds = [rustix::event::PollFd::new(&self.inner.pidfd, rustix::event::PollFlags::IN)];
        matches!(rustix::event::poll(&mut fds, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(n) if n > 0)
    }

    /// Kills it. Does nothing if it has ended already.
    pub fn kill(&self) {
        // The only possible failure with our own pidfd is that the process is gone.
        let _ = pidfd_send_signal(&self.inner.pidfd, Signal::KILL);
    }

    /// Takes the exit status, which also reaps a child.
    fn collect(&self) -> Exit {
        let mut exit = self.inner.exit.lock().unwrap_or_else(PoisonError::into_inner);
        *exit.get_or_insert_with(|| {
            if let Some(home) = &self.inner.home {
                home.remove();
            }
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            match waitid(WaitId::PidFd(self.inner.pidfd.as_fd()), options) {
                Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => Exit::Unknown,
                },
                Ok(None) | Err(_) => Exit::Unknown,
            }
        })
    }

    /// Kills it and has it reaped, without making the caller wait.
    ///
    /// The task started here ends with the process, which SIGKILL ends at once; it needs no other owner.
    pub fn kill_and_forget(self) {
        self.kill();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { self.wait().await });
        }
    }
}

fn open_pidfd(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::Duration;

    use super::*;
    use crate::process::{Launch, Priority};

    fn sleeper(dir: &tempfile::TempDir) -> Process {
        let arguments = vec![OsString::from("1000")];
        let log = dir.path().join("log");
        Launch {
            program: "/bin/sleep".into(),
            arguments,
            log,
            inherited: Vec::new(),
            priority: Priority::Ordinary,
            group: None,
            cell: crate::jail::Cell::open(),
        }
        .spawn()
        .unwrap()
    }

    #[tokio::test]
    async fn all_waiters_see_the_exit_signal() {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(&dir);
        assert!(!process.has_exited());
        let other = process.clone();
        let waiting = tokio::spawn(async move { other.wait().await });
        process.kill();
        let deadline = Duration::from_secs(10);
        assert_eq!(tokio::time::timeout(deadline, process.wait()).await.unwrap(), Exit::Signal(9));
        assert_eq!(tokio::time::timeout(deadline, waiting).await.unwrap().unwrap(), Exit::Signal(9));
        assert_eq!(start_time_of(process.pid()), None, "a child that ended is not left as a zombie");
    }

    #[tokio::test]
    async fn process_is_found_only_by_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let process = sleeper(&dir);
        let record = process.record().clone();
        assert!(Process::find(&record).unwrap().is_some());
        let later = VmRecord { start_time: record.start_time + 1, ..record.clone() };
        assert!(Process::find(&later).unwrap().is_none(), "the pid was reused");
        let rebooted = VmRecord { boot_id: "another".to_owned(), ..record.clone() };
        assert!(Process::find(&rebooted).unwrap().is_none(), "the host was restarted");
        process.kill();
        process.wait().await;
        assert!(Process::find(&record).unwrap().is_none(), "it has ended");
    }
}
