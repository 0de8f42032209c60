//! The loops of process 1 and of the keeper, which restarts the agent when the image's init is process 1.

use std::error::Error;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, WaitOptions, pidfd_open, setrlimit, wait};

use super::agent::AgentLauncher;
use super::idle::reduce_wakeups;
use super::mounts;
use crate::args::InheritedFds;
use crate::console;
use crate::spawn::Child;
use crate::system::{load_first_modules, loopback_up};

/// An agent that dies sooner than this after its start is restarted only after a pause.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// Pause before an agent that died soon after its start is restarted.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// Open files of a process: few by default, because some programs loop over all possible descriptors; many on request.
const OPEN_FILES: Rlimit = Rlimit { current: Some(1024), maximum: Some(524_288) };

/// The signal that [`crate::system::Vm`] sends.
const HAND_OVER: i32 = libc::SIGUSR1;

/// Runs as process 1, for ever.
pub fn run() -> Result<(), Box<dyn Error>> {
    mounts::mount_all()?;
    reduce_wakeups();
    mounts::open_console()?;
    setrlimit(Resource::Nofile, OPEN_FILES)?;
    let signals = block_signals();
    let launcher = AgentLauncher::open()?;
    if let Err(error) = load_first_modules(launcher.initramfs().as_fd()) {
        console::log(format_args!("{error}"));
    }
    if let Err(error) = loopback_up() {
        console::log(format_args!("{error}"));
    }
    let mut agent = Running::start(&launcher);
    loop {
        let signal = next_signal(&signals, agent.as_ref().map_or(Some(RESTART_PAUSE), |_| None));
        reap(&mut agent);
        if signal == Some(HAND_OVER)
            && let Some(running) = &agent
        {
            // It returns only on failure; then this process stays init.
            let error = hand_over(&launcher, running);
            console::log(format_args!("cannot start the image's init: {error}"));
        }
        if agent.is_none() && signal.is_none() {
            agent = Running::start(&launcher);
        } else if let Some(Running { ended: true, started, .. }) = &agent {
            agent = if started.elapsed() >= SHORT_LIFE { Running::start(&launcher) } else { None };
        }
    }
}

/// Runs beside the image's init and restarts the agent, as process 1 does otherwise.
pub fn keep(agent: i32, fds: InheritedFds) -> Result<(), Box<dyn Error>> {
    // SAFETY: init has opened both for this process, which takes each of them once.
    let (program, initramfs) =
        unsafe { (OwnedFd::from_raw_fd(fds.program), OwnedFd::from_raw_fd(fds.initramfs)) };
    rustix::thread::set_name(c"agentiso-keeper")?;
    let launcher = AgentLauncher::from_inherited(program, initramfs);
    let first = Pid::from_raw(agent).ok_or("no agent to keep")?;
    // The first agent is a child of process 1, which reaps it. A pidfd shows its end here too.
    match pidfd_open(first, PidfdFlags::empty()) {
        Ok(pidfd) => {
            while poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None) == Err(rustix::io::Errno::INTR) {}
        }
        Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    let signals = block_signals();
    loop {
        let started = Instant::now();
        match launcher.start_agent() {
            Ok(child) => {
                let status = child.wait()?;
                console::log(format_args!("the agent ended: {status:?}"));
            }
            Err(error) => console::log(format_args!("the agent cannot be started: {error}")),
        }
        if started.elapsed() < SHORT_LIFE {
            // The result is ignored: a signal of a child would only shorten the pause.
            next_signal(&signals, Some(RESTART_PAUSE));
        }
    }
}

struct Running {
    child: Child,
    started: Instant,
    ended: bool,
}

impl Running {
    fn start(launcher: &AgentLauncher) -> Option<Self> {
        match launcher.start_agent() {
            Ok(child) => Some(Self { child, started: Instant::now(), ended: false }),
            Err(error) => {
                console::log(format_args!("the agent cannot be started: {error}"));
                None
            }
        }
    }
}

/// Reaps all processes that have ended, orphans as well as the agent.
fn reap(agent: &mut Option<Running>) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if let Some(running) = agent
            && running.child.pid() == pid
        {
            running.ended = true;
            console::log(format_args!("the agent ended: {status:?}"));
        }
    }
}

/// Blocks the signals that `next_signal` waits for. Otherwise process 1 would never see them.
fn block_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set, the others read it; this process has one thread.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        libc::sigaddset(set.as_mut_ptr(), HAND_OVER);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
        set.assume_init()
    }
}

/// Waits for one of the signals; `None` if the time is up or the wait was interrupted.
fn next_signal(signals: &libc::sigset_t, limit: Option<Duration>) -> Option<i32> {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: all pointers are null or point to values that live until the call returns.
    let signal = unsafe { libc::sigtimedwait(signals, ptr::null_mut(), limit) };
    (signal > 0).then_some(signal)
}

/// Executes the image's init in place of this process. The agent goes on under a keeper.
#[expect(clippy::disallowed_methods, reason = "nothing is started: this process becomes the init")]
fn hand_over(launcher: &AgentLauncher, agent: &Running) -> Box<dyn Error> {
    let attempt = || -> Result<io::Error, Box<dyn Error>> {
        // The keeper shares its root with the agent; the image's init must be free to change its own.
        launcher.start_keeper(agent.child.pid().as_raw_nonzero().get())?;
        // SAFETY: this process has one thread, and nothing in it relies on sharing its root from here on.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?;
        launcher.close_on_exec()?;
        console::log(format_args!("handing over to the image's init"));
        let mut init = Command::new("/sbin/init");
        init.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("TERM", "linux");
        unblock_signals();
        Ok(init.exec())
    };
    match attempt() {
        Ok(error) => error.into(),
        Err(error) => error,
    }
}

fn unblock_signals() {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set; this process has one thread.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}
