//! Processes of a test: found by a path in their command line, signalled through a pidfd.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process held by a pidfd, so that a reused pid cannot be mistaken for it.
#[derive(Debug)]
pub struct Process {
    pub pid: i32,
    fd: rustix::fd::OwnedFd,
}

impl Process {
    /// `None` if no such process lives.
    pub fn open(pid: i32) -> Option<Self> {
        let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let process = Self { pid, fd };
        (!process.is_zombie()).then_some(process)
    }

    fn is_zombie(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
    }

    pub fn signal(&self, signal: Signal) {
        // The process may be gone already, which is the purpose of most signals here.
        let _ = pidfd_send_signal(&self.fd, signal);
    }

    pub fn kill(&self) {
        self.signal(Signal::KILL);
        self.wait_gone(Duration::from_secs(30));
    }

    /// Waits for the end of the process, by its pidfd.
    pub fn wait_gone(&self, limit: Duration) {
        assert!(self.ends_within(limit), "process {} did not end within {limit:?}", self.pid);
    }

    /// Like [`Self::wait_gone`], but says whether it ended.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).expect("poll on a pidfd") == 1
    }

    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll on a pidfd") == 0
    }
}

/// The processes whose command line mentions `path` (a directory that only one test uses).
pub fn processes_mentioning(path: &Path) -> Vec<i32> {
    let wanted = path.as_os_str().as_encoded_bytes();
    let own = std::process::id() as i32;
    fs::read_dir("/proc")
        .expect("/proc is mounted")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.windows(wanted.len()).any(|window| window == wanted))
        })
        .collect()
}
