//! Commands that go on by themselves, and what passes through a guest's files in a stream.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use futures::stream::BoxStream;
use tokio::io::AsyncRead;

use super::{AgentFailure, Captured};

/// A command for the guest's `/bin/sh -c` without a time limit.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    pub command: String,
    /// `None`: `/root`.
    pub workdir: Option<GuestPath>,
    pub env: BTreeMap<String, String>,
}

/// Without the values of variables, which may be secrets.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("command", &self.command)
            .field("workdir", &self.workdir)
            .field("env", &self.env.keys())
            .finish()
    }
}

/// What is wanted of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobQuery {
    pub id: u64,
    /// Bytes of each stream that are known already.
    pub stdout_offset: u64,
    pub stderr_offset: u64,
    /// Bytes wanted of the beginning and, beyond it, the end of what follows.
    pub head_bytes: u64,
    pub tail_bytes: u64,
    /// How long its end is waited for.
    pub wait: Duration,
}

/// How a job is. Its output is what follows the offsets that were asked for; without a head if the bytes there were not
/// kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobState {
    pub running: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Captured,
    pub stderr: Captured,
    pub duration: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSummary {
    pub id: u64,
    /// The beginning of it.
    pub command: String,
    pub running: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub duration: Duration,
}

/// What became of a command that was waited for, but not for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOrJob {
    /// The job that it is while it still runs.
    pub job: Option<u64>,
    /// How it is, with its output from the beginning.
    pub state: JobState,
}

/// How a directory is to be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Levels of directories, from 1 on.
    pub depth: u32,
    /// A pattern for paths if it has a slash, else for names.
    pub glob: Option<String>,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { depth: 1, glob: None }
    }
}

/// What a guest is sent.
pub type Upload = Pin<Box<dyn AsyncRead + Send>>;

/// What comes from a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    Data(Bytes),
    /// All of it, but for pipes, sockets and devices.
    End {
        skipped: u64,
    },
}

/// A file on its way from a guest. Dropping it ends the transfer.
pub struct Download {
    /// As the guest says.
    pub size: u64,
    pub mode: u32,
    pub pieces: Pieces,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("size", &self.size).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// A file's bytes, or those of an archive of a directory. Complete only if the end was among them.
pub type Pieces = BoxStream<'static, Result<Arrived, AgentFailure>>;
