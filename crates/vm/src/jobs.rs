//! Jobs: commands that outlive the call that started them.

use std::time::Duration;

use crate::exec::Captured;

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
