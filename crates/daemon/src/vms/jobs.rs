//! Types for jobs, for directory listings, and for file contents that are streamed from and to a guest.

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
    /// `None` stands for `/root`.
    pub workdir: Option<GuestPath>,
    pub env: BTreeMap<String, String>,
}

/// Omits the values of variables, which may be secrets.
impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("command", &self.command)
            .field("workdir", &self.workdir)
            .field("env", &self.env.keys())
            .finish()
    }
}

/// A question about a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobQuery {
    pub id: u64,
    /// Bytes of each stream that the caller already has.
    pub stdout_offset: u64,
    pub stderr_offset: u64,
    /// Bytes wanted of the beginning and of the end of the output after the offsets.
    pub head_bytes: u64,
    pub tail_bytes: u64,
    /// The longest time to wait for the job's end.
    pub wait: Duration,
}

/// The state of a job. Its output is the part after the requested offsets; it has no head if the bytes there were
/// not kept.
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
    /// The beginning of the command.
    pub command: String,
    pub running: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub duration: Duration,
}

/// The result of a command that was waited for only so long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOrJob {
    /// The id of the job, while the command still runs.
    pub job: Option<u64>,
    /// Its state, with its output from the beginning.
    pub state: JobState,
}

/// Options for listing a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Levels of directories, from 1 on.
    pub depth: u32,
    /// A pattern that is matched against paths if it contains a slash, else against names.
    pub glob: Option<String>,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { depth: 1, glob: None }
    }
}

/// Data that is sent to a guest.
pub type Upload = Pin<Box<dyn AsyncRead + Send>>;

/// A piece of data from a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    Data(Bytes),
    /// Everything was sent, except pipes, sockets and devices.
    End {
        skipped: u64,
    },
}

/// A file on its way from a guest. Dropping it ends the transfer.
pub struct Download {
    /// The size that the guest reports.
    pub size: u64,
    pub mode: u32,
    pub pieces: Pieces,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").field("size", &self.size).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// The bytes of a file, or of an archive of a directory. Complete only if the stream contained the end.
pub type Pieces = BoxStream<'static, Result<Arrived, AgentFailure>>;
