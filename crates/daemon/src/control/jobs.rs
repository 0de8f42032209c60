//! Requests and answers about jobs on a control connection.

use std::time::Duration;

use agentiso_core::env;
use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::GuestPath;
use serde::{Deserialize, Serialize};

use super::failure::RequestError;
use super::wire::{Captured, ExecParams, WireError};
use crate::session::Session;
use crate::vms::{Command, JobQuery, JobState, JobSummary};

/// Bytes of each stream in one answer; a client that wants more asks again.
const MAX_BYTES: u64 = 512 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStarted {
    pub job_id: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobParams {
    pub workspace: String,
    pub job_id: u64,
    /// Bytes of each stream that the client already has.
    pub stdout_offset: u64,
    pub stderr_offset: u64,
    /// The longest time to wait for its end.
    pub wait_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobOutput {
    pub running: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Captured,
    pub stderr: Captured,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub job_id: u64,
    pub command: String,
    pub running: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobKilled {
    /// Whether it still runs: the signal did not end it, or not yet.
    pub running: bool,
}

impl From<JobState> for JobOutput {
    fn from(state: JobState) -> Self {
        Self {
            running: state.running,
            exit_code: state.exit_code,
            signal: state.signal,
            stdout: state.stdout.into(),
            stderr: state.stderr.into(),
        }
    }
}

impl From<JobSummary> for Job {
    fn from(job: JobSummary) -> Self {
        Self {
            job_id: job.id,
            command: job.command,
            running: job.running,
            exit_code: job.exit_code,
            signal: job.signal,
            stdout_bytes: job.stdout_bytes,
            stderr_bytes: job.stderr_bytes,
            seconds: job.duration.as_secs(),
        }
    }
}

pub(super) async fn start(session: &Session, params: ExecParams) -> Result<JobStarted, RequestError> {
    let variables = params.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    env::check(variables).map_err(WireError::invalid)?;
    let workdir = params.workdir.as_deref().map(GuestPath::parse).transpose().map_err(WireError::invalid)?;
    let guest = session.guest(&WorkspaceRef::parse(&params.workspace)).await?;
    let job_id = guest.start_job(Command { command: params.command, workdir, env: params.env }).await?;
    Ok(JobStarted { job_id })
}

pub(super) async fn poll(session: &Session, params: JobParams) -> Result<JobOutput, RequestError> {
    let guest = session.guest(&WorkspaceRef::parse(&params.workspace)).await?;
    let query = JobQuery {
        id: params.job_id,
        stdout_offset: params.stdout_offset,
        stderr_offset: params.stderr_offset,
        head_bytes: MAX_BYTES,
        tail_bytes: 0,
        wait: Duration::from_millis(params.wait_ms),
    };
    Ok(guest.poll_job(query).await?.into())
}

pub(super) async fn list(session: &Session, workspace: &str) -> Result<Vec<Job>, RequestError> {
    let guest = session.guest(&WorkspaceRef::parse(workspace)).await?;
    Ok(guest.list_jobs().await?.into_iter().map(Job::from).collect())
}

pub(super) async fn kill(
    session: &Session,
    workspace: &str,
    job_id: u64,
    signal: i32,
) -> Result<JobKilled, RequestError> {
    let guest = session.guest(&WorkspaceRef::parse(workspace)).await?;
    Ok(JobKilled { running: guest.kill_job(job_id, signal).await? })
}
