//! Starts a program that outlives the daemon, in a session of its own and with only the descriptors that it is given.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RawDir};
use thiserror::Error;

use super::child::ChildSetup;
use super::handle::{Process, ProcessError};
use crate::cgroup::Group;
use crate::files::FileError;
use crate::jail::Cell;

#[derive(Debug, Error)]
pub enum SpawnError {
    #[error(transparent)]
    Log(#[from] FileError),
    #[error("{} could not be started: {source}", program.display())]
    Exec { program: PathBuf, source: io::Error },
    #[error("{} could not be put into its jail ({step}): {source}", program.display())]
    Jail { program: PathBuf, step: String, source: io::Error },
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// A program to start.
#[derive(Debug)]
pub struct Launch {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Receives stdout and stderr, appended: a file, or a named pipe.
    pub log: PathBuf,
    /// Descriptors the program inherits under the numbers they have here, which its arguments name.
    pub inherited: Vec<OwnedFd>,
    pub priority: Priority,
    /// The cgroup that it is in from its first instruction on. `None`: the daemon's cgroup.
    pub group: Option<Group>,
    /// The jail of the program.
    pub cell: Cell,
}

/// The scheduling priority if there are more programs than processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Users wait for its work at every moment.
    Ordinary,
    /// Background work, which should not slow down the VMs of users.
    Background,
}

impl Launch {
    /// Starts the program. It is not ended when the returned handle is dropped.
    pub fn spawn(self) -> Result<Process, SpawnError> {
        let log = open_log(&self.log)?;
        let inherited: Vec<RawFd> = self.inherited.iter().map(AsRawFd::as_raw_fd).collect();
        let child = ChildSetup::new(&self.program, &self.arguments, log.into(), inherited, &self.cell)
            .map_err(|source| SpawnError::Exec { program: self.program.clone(), source })?;
        let pid = child.in_group(self.group.as_ref()).at(self.priority).run(&self.program)?;
        watch(pid)
    }
}

/// Takes hold of a child. A child that cannot be watched is killed.
pub(super) fn watch(pid: i32) -> Result<Process, SpawnError> {
    Process::of_child(pid).map_err(|error| {
        // Both calls fail only if it has ended by itself.
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        }
        error.into()
    })
}

/// Detaches a program that is about to start; it keeps only its standard streams and the descriptors that it is given.
/// Runs in the child between fork and exec, and only makes system calls.
pub fn detach(inherited: &[RawFd]) -> io::Result<()> {
    // A separate session: the terminal's Ctrl-C and hangup are for the daemon, not for the program.
    rustix::process::setsid()?;
    // The daemon's parent may have left descriptors open that are not close-on-exec; the program would keep their
    // pipes, locks and sockets alive.
    // SAFETY: close_range takes no pointers; with this flag it only marks descriptors.
    let marked = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) };
    if marked != 0 {
        // An older kernel, or a container that does not know the call.
        mark_one_by_one()?;
    }
    for fd in inherited {
        // SAFETY: fcntl with F_SETFD takes no pointers; the descriptor was inherited through fork.
        if unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Marks all descriptors but the standard streams as close-on-exec. It only makes system calls.
fn mark_one_by_one() -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
    let mut space = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(&dir, &mut space);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let digits = entry.file_name().to_bytes();
        let number = digits.iter().try_fold(0, |number: RawFd, digit| match digit {
            b'0'..=b'9' => number.checked_mul(10)?.checked_add(RawFd::from(digit - b'0')),
            _ => None,
        });
        if let Some(fd) = number.filter(|fd| *fd > 2) {
            // SAFETY: takes no pointers. A descriptor that does not exist need not be marked.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

fn open_log(path: &Path) -> Result<File, FileError> {
    // A program whose log is a pipe never blocks on the reader. It gets no SIGPIPE when the reader ends, because it has
    // the pipe open for reading too. Output beyond the pipe's capacity is lost.
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .custom_flags(libc::O_NONBLOCK)
        .mode(0o600)
        .open(path)
        .map_err(FileError::at("open the log", path))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::Exit;
    use crate::process::child::BACKGROUND_NICENESS;

    fn shell(script: &str, log: &Path, inherited: Vec<OwnedFd>) -> Process {
        let arguments = ["-c", script].map(OsString::from).to_vec();
        let priority = Priority::Ordinary;
        Launch {
            program: "/bin/sh".into(),
            arguments,
            log: log.to_owned(),
            inherited,
            priority,
            group: None,
            cell: Cell::open(),
        }
        .spawn()
        .unwrap()
    }

    #[tokio::test]
    async fn output_is_appended_and_exit_code_returned() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, "before\n").unwrap();
        let process = shell("echo out; echo err >&2; exit 7", &log, Vec::new());
        assert_eq!(process.wait().await, Exit::Code(7));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "before\nout\nerr\n");
    }

    #[tokio::test]
    async fn only_named_descriptors_are_inherited() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let given: OwnedFd = tempfile::tempfile().unwrap().into();
        let other = tempfile::tempfile().unwrap();
        // SAFETY: clears close-on-exec of a descriptor this test owns, as a careless parent would have done.
        unsafe { libc::fcntl(other.as_raw_fd(), libc::F_SETFD, 0) };
        let (given_number, other_number) = (given.as_raw_fd(), other.as_raw_fd());
        let script = format!(
            "test -e /proc/$$/fd/{given_number} && ! test -e /proc/$$/fd/{other_number} && test $(ps -o sid= -p $$) = $$"
        );
        let process = shell(&script, &log, vec![given]);
        assert_eq!(process.wait().await, Exit::Code(0), "{}", std::fs::read_to_string(&log).unwrap());
    }

    #[test]
    fn descriptors_are_marked_without_close_range() {
        let file = tempfile::tempfile().unwrap();
        // SAFETY: both calls take no pointers, and the descriptor is this test's own.
        let flags = |request, value: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), request, value) };
        assert_eq!(flags(libc::F_SETFD, 0), 0);
        mark_one_by_one().unwrap();
        assert_eq!(flags(libc::F_GETFD, 0), libc::FD_CLOEXEC);
    }

    #[tokio::test]
    async fn background_priority_lowers_process_and_autogroup() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = "ps -o ni= -p $$; cat /proc/$$/autogroup 2>&1";
        let niceness = BACKGROUND_NICENESS.to_string();
        let mut said = String::new();
        // The kernel allows one unprivileged change per 100 ms on the whole host; another process may have used it up.
        for _ in 0..20 {
            let launch = Launch {
                program: "/bin/sh".into(),
                arguments: ["-c", script].map(OsString::from).to_vec(),
                log: log.clone(),
                inherited: Vec::new(),
                priority: Priority::Background,
                group: None,
                cell: Cell::open(),
            };
            assert_eq!(launch.spawn().unwrap().wait().await, Exit::Code(0));
            said = std::fs::read_to_string(&log).unwrap();
            assert_eq!(said.lines().next().map(str::trim), Some(niceness.as_str()), "{said}");
            if !Path::new("/proc/self/autogroup").exists() || said.contains(&format!("nice {niceness}")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(110)).await;
        }
        panic!("{said}");
    }

    #[tokio::test]
    async fn spawning_a_missing_program_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let launch = Launch {
            program: "/no/such/qemu".into(),
            arguments: Vec::new(),
            log: dir.path().join("log"),
            inherited: Vec::new(),
            priority: Priority::Ordinary,
            group: None,
            cell: Cell::open(),
        };
        assert!(launch.spawn().unwrap_err().to_string().contains("/no/such/qemu"));
    }
}
