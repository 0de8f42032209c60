//! Creates a child that becomes another program: cloned into its namespaces, put into its jail, and asked which step it
//! reached.

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

/// Variables of our environment that a program may need: library paths and the directory for temporary files.
const KEPT_ENVIRONMENT: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "TMPDIR", "LANG"];

/// A quarter of an ordinary share: enough to finish on a busy host.
pub(super) const BACKGROUND_NICENESS: i32 = 6;
const AUTOGROUP_NICENESS: &[u8] = b"6";

/// Everything that a child needs to become a program, looked up and allocated before it is created.
pub(super) struct ChildSetup {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    input: OwnedFd,
    output: OwnedFd,
    inherited: Vec<RawFd>,
    cgroup: Option<RawFd>,
    priority: Priority,
    prepared: Prepared,
}

impl ChildSetup {
    /// `output` receives everything that the program prints, errors included.
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
            cgroup: None,
            priority: Priority::Ordinary,
            prepared: Prepared::new(cell)?,
        })
    }

    pub(super) fn in_group(mut self, group: Option<&Group>) -> Self {
        self.cgroup = group.map(Group::door);
        self
    }

    pub(super) fn at(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Creates the child. Returns its process id on the host once its program has started.
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
                        step: "creating its namespaces".to_owned(),
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
            // The pipe was closed by `exec`: the program has started.
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
            join(self.cgroup).map_err(at(Step::Group))?;
            lower_priority(self.priority);
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

/// Runs in the child. Sets its standard streams, its working directory and its signal handling.
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
        // A signal that arrives before `exec` must not run our handlers, of which the child has copies. Two signals
        // cannot have handlers, and libc reserves two.
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    Ok(())
}

/// Blocks signals in this thread, and in a child that is created meanwhile. When dropped, they are delivered.
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

/// Runs in the child. A program that should have limits does not run without them.
fn join(cgroup: Option<RawFd>) -> io::Result<()> {
    let Some(cgroup) = cgroup else { return Ok(()) };
    // SAFETY: the group owns the descriptor and lives until the child has begun.
    let cgroup = unsafe { BorrowedFd::borrow_raw(cgroup) };
    rustix::io::write(cgroup, Group::ITSELF)?;
    Ok(())
}

/// Runs in the child. If the host does not allow it, the program starts anyway.
fn lower_priority(priority: Priority) {
    match priority {
        Priority::Ordinary => {}
        Priority::Background => {
            // With autogroups the kernel shares time between sessions first, and niceness alone has no effect between
            // them. The kernel allows one unprivileged change per 100 ms; a refused program keeps an ordinary share, so
            // of many that start at once only some step back.
            let _ =
                rustix::fs::open(c"/proc/self/autogroup", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
                    .and_then(|file| rustix::io::write(&file, AUTOGROUP_NICENESS));
            let _ = rustix::process::setpriority_process(None, BACKGROUND_NICENESS);
        }
    }
}

/// Reaps a child that has ended.
fn reap(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid);
    let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
}
