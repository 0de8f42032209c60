//! Starts the agent by the descriptor of its program, which works after the change of the root too.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags, open};

use crate::args::InheritedFds;
use crate::spawn::{Child, Program, ProgramFile, SpawnError, spawn};

/// The name of the agent's processes. systemd spares processes whose name begins with `@` when it kills all others.
const NAME: &str = "@agentiso-guest";

/// The OOM killer takes other processes first, because the agent is small and everything depends on it. The agent is
/// not exempt: if it grew, it would be killed and restarted.
const OOM_SCORE: &std::ffi::CStr = c"-500";

/// Starts agents by descriptors that stay usable after the change of the root.
#[derive(Debug)]
pub(super) struct AgentLauncher {
    program: OwnedFd,
    initramfs: OwnedFd,
}

impl AgentLauncher {
    /// Opens this program and the root directory. Children inherit both.
    pub(super) fn open() -> io::Result<Self> {
        let program = open("/proc/self/exe", OFlags::PATH, Mode::empty())?;
        let initramfs = open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self { program, initramfs })
    }

    pub(super) fn from_inherited(program: OwnedFd, initramfs: OwnedFd) -> Self {
        Self { program, initramfs }
    }

    pub(super) fn initramfs(&self) -> &OwnedFd {
        &self.initramfs
    }

    /// Prevents a program that is about to be executed from inheriting the descriptors.
    pub(super) fn close_on_exec(&self) -> io::Result<()> {
        rustix::io::fcntl_setfd(&self.program, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::fcntl_setfd(&self.initramfs, rustix::io::FdFlags::CLOEXEC)?;
        Ok(())
    }

    pub(super) fn start_agent(&self) -> Result<Child, SpawnError> {
        self.start(vec!["--agent".into()])
    }

    pub(super) fn start_keeper(&self, agent: i32) -> Result<Child, SpawnError> {
        self.start(vec!["--keep".into(), agent.to_string()])
    }

    fn start(&self, mut args: Vec<String>) -> Result<Child, SpawnError> {
        args.insert(0, NAME.into());
        let fds = InheritedFds { program: self.program.as_raw_fd(), initramfs: self.initramfs.as_raw_fd() };
        args.extend(fds.to_args());
        // None of them contains a zero byte.
        let args: Vec<CString> = args.into_iter().filter_map(|arg| CString::new(arg).ok()).collect();
        spawn(&Program {
            file: ProgramFile::Fd(self.program.as_fd()),
            args: &args,
            env: &[],
            workdir: None,
            stdio: [None; 3],
            session: true,
            oom_score: OOM_SCORE,
            share_root: true,
        })
    }
}
