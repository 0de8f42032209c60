//! Starts processes without copying the agent's page tables.
//!
//! The standard library can do that only if nothing has to happen between fork and exec. But a new session, another OOM
//! score and a shared root directory have to be set there. So this code does what `posix_spawn` does: the child uses
//! the parent's memory, on a separate stack, until it executes another program; the parent waits meanwhile. The parent
//! gets a pidfd together with the child, so a process id is never looked up later, when it may have been reused.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_char, c_int, c_void};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// A program to start.
#[derive(Debug)]
pub struct Program<'a> {
    /// File to execute.
    pub file: ProgramFile<'a>,
    /// Arguments, beginning with the program's name.
    pub args: &'a [CString],
    /// Environment as `NAME=value`.
    pub env: &'a [CString],
    /// Working directory; absent: that of the parent.
    pub workdir: Option<&'a CStr>,
    /// Standard input, output and error; absent: those of the parent.
    pub stdio: [Option<BorrowedFd<'a>>; 3],
    /// Whether it gets its own session, and with it its own process group.
    pub session: bool,
    /// The text for `/proc/self/oom_score_adj`.
    pub oom_score: &'static CStr,
    /// Whether a change of the root directory by either process holds for both.
    pub share_root: bool,
}

/// The location of a program.
#[derive(Clone, Copy, Debug)]
pub enum ProgramFile<'a> {
    /// At a path.
    Path(&'a CStr),
    /// An open file, which may no longer be reachable by a path.
    Fd(BorrowedFd<'a>),
}

/// A process that was started and not reaped yet.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
}

/// The reason for which a process was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The kernel could not make a process.
    #[error("cannot create a process")]
    Clone(#[source] io::Error),
    /// The working directory cannot be entered.
    #[error("cannot change to the working directory")]
    Workdir(#[source] io::Error),
    /// The program cannot be executed.
    #[error("cannot execute the program")]
    Exec(#[source] io::Error),
    /// The set-up of the process failed.
    #[error("cannot set up the process")]
    SetUp(#[source] io::Error),
}

/// Stack of the child until it executes the program. Its frames hold a few pointers; the size leaves room for
/// unoptimised builds.
const STACK_BYTES: usize = 32 * 1024;

const STEP_SET_UP: c_int = 1;
const STEP_WORKDIR: c_int = 2;
const STEP_EXEC: c_int = 3;

/// Everything that the child needs. It is prepared by the parent, because the child must not allocate.
struct Plan {
    path: *const c_char,
    program_fd: RawFd,
    args: *const *const c_char,
    env: *const *const c_char,
    workdir: *const c_char,
    stdio: [RawFd; 3],
    session: bool,
    oom_score: *const c_char,
    oom_score_length: usize,
    failed_step: AtomicI32,
    failed_errno: AtomicI32,
}

impl Child {
    /// Its process id. It is also the id of its group and session, if it has its own.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for its end and reaps it.
    pub fn wait(&self) -> io::Result<WaitIdStatus> {
        loop {
            match self.reap(WaitIdOptions::EXITED) {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reaps it if it has ended.
    pub fn try_wait(&self) -> io::Result<Option<WaitIdStatus>> {
        self.reap(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    }

    fn reap(&self, options: WaitIdOptions) -> io::Result<Option<WaitIdStatus>> {
        Ok(waitid(WaitId::PidFd(self.pidfd.as_fd()), options)?)
    }
}

/// Becomes readable when the process has ended.
impl AsFd for Child {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl AsRawFd for Child {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

/// Starts a process.
pub fn spawn(program: &Program<'_>) -> Result<Child, SpawnError> {
    let args = pointers(program.args);
    let env = pointers(program.env);
    let (path, program_fd) = match program.file {
        ProgramFile::Path(path) => (path.as_ptr(), -1),
        ProgramFile::Fd(fd) => (c"".as_ptr(), fd.as_raw_fd()),
    };
    let plan = Plan {
        path,
        program_fd,
        args: args.as_ptr(),
        env: env.as_ptr(),
        workdir: program.workdir.map_or(ptr::null(), CStr::as_ptr),
        stdio: program.stdio.map(|fd| fd.map_or(-1, |fd| fd.as_raw_fd())),
        session: program.session,
        oom_score: program.oom_score.as_ptr(),
        oom_score_length: program.oom_score.count_bytes(),
        failed_step: AtomicI32::new(0),
        failed_errno: AtomicI32::new(0),
    };
    let child = clone_process(&plan, program.share_root).map_err(SpawnError::Clone)?;
    let step = plan.failed_step.load(Ordering::Acquire);
    if step == 0 {
        return Ok(child);
    }
    // The child has ended or ends at once. It is reaped here, so that no zombie remains.
    drop(child.wait());
    let error = io::Error::from_raw_os_error(plan.failed_errno.load(Ordering::Acquire));
    Err(match step {
        STEP_WORKDIR => SpawnError::Workdir(error),
        STEP_EXEC => SpawnError::Exec(error),
        _ => SpawnError::SetUp(error),
    })
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

fn clone_process(plan: &Plan, share_root: bool) -> io::Result<Child> {
    let mut flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    if share_root {
        flags |= libc::CLONE_FS;
    }
    // The elements are sixteen bytes wide, because the ABI requires that alignment of the stack.
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK_BYTES / size_of::<u128>());
    let mut pidfd: c_int = -1;
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY:
    // - `sigfillset` and `pthread_sigmask` initialise the sets that they are given.
    // - All signals are blocked, so no handler of this process runs in the child while it shares our memory; the
    //   child changes its own mask only.
    // - The child runs `child` on `stack`, which is not used by anything else, and reads `plan`. Both live as long as
    //   it uses them: CLONE_VFORK keeps this thread from going on until the child has executed another program or ended.
    // - `pidfd` is written by the kernel before `clone` returns, as CLONE_PIDFD says, and is then owned by nobody.
    let (result, pidfd) = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let top = stack.as_mut_ptr().add(stack.capacity()).cast::<c_void>();
        let argument = ptr::from_ref(plan).cast_mut().cast::<c_void>();
        let pid = libc::clone(child, top, flags, argument, &raw mut pidfd);
        let result = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        (result, pidfd)
    };
    let pid = Pid::from_raw(result?).ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: the call succeeded, so `pidfd` is open and nobody else has it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Child { pid, pidfd })
}

/// Runs in the child until it executes the program. It makes only system calls, because its memory, including all
/// locks, is that of the waiting parent.
extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: `clone_process` passes a `Plan` that lives until this function ends or executes a program. All
    // pointers in it end in a null byte or null pointer and live as long. The functions called are system calls
    // without state in user space besides `errno`, which the parent does not look at before it goes on.
    unsafe {
        let plan = &*argument.cast::<Plan>();
        let step = run_plan(plan);
        plan.failed_errno.store(*libc::__errno_location(), Ordering::Release);
        plan.failed_step.store(step, Ordering::Release);
        libc::_exit(127)
    }
}

/// Carries out the plan. Returns only on failure, with the step that failed.
///
/// # Safety
///
/// As described in [`child`].
unsafe fn run_plan(plan: &Plan) -> c_int {
    // SAFETY: see `child`.
    unsafe {
        if plan.session && libc::setsid() < 0 {
            return STEP_SET_UP;
        }
        // The score is kept per process even while memory is shared, as long as the parent waits in vfork. A failure
        // (no /proc, or a host that forbids lowering it) does not prevent the start.
        let oom = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if oom >= 0 {
            libc::write(oom, plan.oom_score.cast(), plan.oom_score_length);
            libc::close(oom);
        }
        for (target, fd) in (0..).zip(plan.stdio) {
            let moved = if fd == target { libc::fcntl(fd, libc::F_SETFD, 0) } else { libc::dup2(fd, target) };
            if fd >= 0 && moved < 0 {
                return STEP_SET_UP;
            }
        }
        if !plan.workdir.is_null() && libc::chdir(plan.workdir) < 0 {
            return STEP_WORKDIR;
        }
        // Rust ignores SIGPIPE, and an ignored signal stays ignored after exec. The kernel resets handlers.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        if plan.program_fd >= 0 {
            // Not every C library has a wrapper for it.
            libc::syscall(
                libc::SYS_execveat,
                plan.program_fd,
                plan.path,
                plan.args,
                plan.env,
                libc::AT_EMPTY_PATH,
            );
        } else {
            libc::execve(plan.path, plan.args, plan.env);
        }
        STEP_EXEC
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString};
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::{Program, ProgramFile, SpawnError, spawn};

    fn output(file: ProgramFile<'_>, script: &str, workdir: Option<&CStr>) -> Result<String, SpawnError> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let args = [c"sh".to_owned(), c"-c".to_owned(), CString::new(script).expect("no zero byte")];
        let child = spawn(&Program {
            file,
            args: &args,
            env: &[c"PATH=/usr/bin:/bin".to_owned()],
            workdir,
            stdio: [None, Some(write.as_fd()), None],
            session: true,
            oom_score: c"0",
            share_root: false,
        })?;
        drop(write);
        let mut text = String::new();
        File::from(read).read_to_string(&mut text).expect("output");
        assert_eq!(child.wait().expect("it ends").exit_status(), Some(0));
        Ok(text)
    }

    #[test]
    fn child_leads_its_own_session_and_group() {
        let text = output(ProgramFile::Path(c"/bin/sh"), "echo $$; cut -d' ' -f1,5,6 /proc/self/stat", None)
            .expect("it starts");
        let numbers: Vec<&str> = text.split_whitespace().collect();
        assert_eq!((numbers[0], numbers[0]), (numbers[2], numbers[3]));
        assert_ne!(numbers[1], numbers[0]);
    }

    #[test]
    fn child_starts_with_default_signal_handling() {
        let text = output(ProgramFile::Path(c"/bin/sh"), "grep -E '^Sig(Blk|Ign)' /proc/self/status", None)
            .expect("it starts");
        let mask = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says so");
            u64::from_str_radix(line.trim(), 16).expect("a number")
        };
        assert_eq!(mask("SigBlk:"), 0);
        assert_eq!(mask("SigIgn:") & (1 << (libc::SIGPIPE - 1)), 0);
    }

    #[test]
    fn open_file_can_be_executed() {
        let shell = File::open("/bin/sh").expect("a shell");
        assert_eq!(
            output(ProgramFile::Fd(shell.as_fd()), "pwd", Some(c"/usr")).expect("it starts"),
            "/usr\n"
        );
    }

    #[test]
    fn missing_workdir_and_missing_program_errors_differ() {
        let missing = c"/does/not/exist";
        let found = output(ProgramFile::Path(c"/bin/sh"), "true", Some(missing));
        assert!(
            matches!(found, Err(SpawnError::Workdir(error)) if error.raw_os_error() == Some(libc::ENOENT))
        );
        let found = output(ProgramFile::Path(missing), "true", None);
        assert!(matches!(found, Err(SpawnError::Exec(error)) if error.raw_os_error() == Some(libc::ENOENT)));
    }

    #[test]
    fn descriptors_of_the_agent_are_not_inherited() {
        let kept = tempfile::NamedTempFile::new().expect("a file");
        let text = output(ProgramFile::Path(c"/bin/sh"), "ls -l /proc/self/fd", None).expect("it starts");
        assert!(text.contains("pipe:"), "{text}");
        assert!(!text.contains(&kept.path().display().to_string()), "{text}");
    }
}
