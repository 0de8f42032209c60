//! A child that becomes another program: cloned into its namespaces, put into its jail, and asked how far it came.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::spawn::{Priority, SpawnError, detach};
use crate::cgroup::Group;
use crate::jail::{Cell, Failed, MESSAGE, Prepared, Step, enter};

/// What a program may need from our environment: where its libraries are, and where temporary files go.
const KEPT_ENVIRONMENT: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "TMPDIR", "LANG"];

/// A quarter of what others get: enough to come to an end on a busy host.
pub(super) const BACKGROUND_NICENESS: i32 = 6;
const AUTOGROUP_NICENESS: &[u8] = b"6";

/// What a child needs to become a program, all of it looked up and allocated before it is born.
pub(super) struct Birth {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    input: OwnedFd,
    output: OwnedFd,
    inherited: Vec<RawFd>,
    door: Option<RawFd>,
    priority: Priority,
    prepared: Prepared,
}

impl Birth {
    /// `output` receives what it prints, errors included.
    pub(super) fn new(
        program: &Path,
        arguments: &[OsString],
        output: OwnedFd,
        inherited: Vec<RawFd>,
        cell: &Cell,
    ) -> io::Result<Self> {
        let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
        let name = text(program.as_os_str())?;
        let mut all = vec![name.clone()];
        for argument in arguments {
            all.push(text(argument)?);
        }
        let mut environment = Vec::new();
        for key in KEPT_ENVIRONMENT {
            if let Some(value) = std::env::var_os(key) {
                environment.push(text(&OsString::from_iter([OsStr::new(key), OsStr::new("="), &value]))?);
            }
        }
        let input = rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            program: name,
            arguments: all,
            environment,
            input,
            output,
            inherited,
            door: None,
            priority: Priority::Ordinary,
            prepared: Prepared::new(cell)?,
        })
    }

    pub(super) fn in_group(mut self, group: Option<&Group>) -> Self {
        self.door = group.map(Group::door);
        self
    }

    pub(super) fn at(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// The process id of the child, as the host sees it, once its program has begun.
    pub(super) fn run(mut self, program: &Path) -> Result<i32, SpawnError> {
        let failed = |source| SpawnError::Exec { program: program.to_owned(), source };
        let (heard, said) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let arguments = pointers(&self.arguments);
        let environment = pointers(&self.environment);
        let flags = self.prepared.clone_flags() | libc::SIGCHLD;
        let none = ptr::null::<libc::c_void>();
        let held = Signals::hold();
        // SAFETY: without CLONE_VM the child has a copy of our memory and a stack of its own at the same place, as
        // after fork. It makes system calls with values that were prepared before, and ends in exec or _exit.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, none, none, none, none) };
        let source = io::Error::last_os_error();
        match pid {
            -1 => {
                return Err(match self.prepared.clone_flags() {
                    0 => failed(source),
                    _ => SpawnError::Jail {
                        program: program.to_owned(),
                        step: "making its namespaces".to_owned(),
                        source,
                    },
                });
            }
            0 => {
                let Failed(step, errno) = self.become_program(&arguments, &environment);
                let message = Failed(step, errno).to_bytes();
                // SAFETY: the message is as long as it is said to be; the child ends here.
                unsafe {
                    libc::write(said.as_raw_fd(), message.as_ptr().cast(), message.len());
                    libc::_exit(127)
                }
            }
            _ => {}
        }
        drop(held);
        let pid = pid as i32;
        drop(said);
        let mut message = [0; MESSAGE];
        match File::from(heard).read_exact(&mut message) {
            // The program has begun, which closed the pipe.
            Err(_) => Ok(pid),
            Ok(()) => {
                reap(pid);
                let (step, source) =
                    Failed::from_bytes(message).unwrap_or((Step::Exec, io::ErrorKind::InvalidData.into()));
                if step == Step::Exec {
                    return Err(failed(source));
                }
                Err(SpawnError::Jail { program: program.to_owned(), step: step.to_string(), source })
            }
        }
    }

    /// Runs in the child and returns only if it failed.
    fn become_program(
        &mut self,
        arguments: &[*const libc::c_char],
        environment: &[*const libc::c_char],
    ) -> Failed {
        let begun = || -> Result<(), Failed> {
            detach(&self.inherited).map_err(at(Step::Detach))?;
            streams(self.input.as_raw_fd(), self.output.as_raw_fd()).map_err(at(Step::Detach))?;
            join(self.door).map_err(at(Step::Group))?;
            step_back(self.priority);
            enter(&mut self.prepared)
        };
        let mut begun = begun;
        if let Err(failed) = begun() {
            return failed;
        }
        // SAFETY: all texts end with NUL and both lists with null.
        unsafe {
            libc::execve(self.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
            Failed(Step::Exec, *libc::__errno_location())
        }
    }
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

fn at(step: Step) -> impl Fn(io::Error) -> Failed {
    move |error| Failed(step, error.raw_os_error().unwrap_or(libc::EIO))
}

/// Runs in the child. Its streams, its working directory, and what it would inherit of our handling of signals.
fn streams(input: RawFd, output: RawFd) -> io::Result<()> {
    // SAFETY: the descriptors are open, the path ends with NUL, and the set of signals is written before it is read.
    unsafe {
        for (from, to) in [(input, 0), (output, 1), (output, 2)] {
            if libc::dup2(from, to) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // Our working directory may be removed or unmounted while the program runs.
        if libc::chdir(c"/".as_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        // A signal that comes before its program begins is not for our handlers, of which it has copies. There are none for
        // two of them, and libc keeps two for itself.
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    Ok(())
}

/// Signals that this thread, and a child that is born meanwhile, gets only later. Dropped, they come.
struct Signals(libc::sigset_t);

impl Signals {
    fn hold() -> Self {
        // SAFETY: both sets are written before they are read.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set was written by the kernel.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Runs in the child. What should have a limit does not run without.
fn join(door: Option<RawFd>) -> io::Result<()> {
    let Some(door) = door else { return Ok(()) };
    // SAFETY: the group owns the descriptor and lives until the child has begun.
    let door = unsafe { BorrowedFd::borrow_raw(door) };
    rustix::io::write(door, Group::ITSELF)?;
    Ok(())
}

/// Runs in the child. A host that does not let it is no reason not to start.
fn step_back(priority: Priority) {
    match priority {
        Priority::Ordinary => {}
        Priority::Background => {
            // Where the kernel shares time between sessions first, niceness alone does nothing between them. It lets
            // one program do this in 100 ms unless it is privileged, and whoever is refused gets a whole share: of many
            // that begin at once the others have to do with that.
            let _ =
                rustix::fs::open(c"/proc/self/autogroup", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
                    .and_then(|file| rustix::io::write(&file, AUTOGROUP_NICENESS));
            let _ = rustix::process::setpriority_process(None, BACKGROUND_NICENESS);
        }
    }
}

/// Lets the kernel forget a child that has ended.
fn reap(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid);
    let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
}
