//! Operations on jobs, for `exec_background` and for the single tools of earlier versions.

use std::time::Duration;

use agentiso_daemon::{Command, Guest, JobQuery, JobSummary};
use serde_json::{Value, json};

use super::command::{exit_code, job_failure, job_view, with_heartbeat};
use crate::answer::{Answer, Failure};
use crate::args::Integer;
use crate::progress::Reporter;
use crate::truncate::Budget;

/// SIGKILL.
pub(super) const KILL: u64 = 9;

/// More bytes than a job prints in the lifetime of a VM.
const MAX_OFFSET: u64 = 16 << 40;

pub(super) const JOB_ID: Integer = Integer::new("job_id", "Job id returned by start.", 1..=Integer::OPEN);
pub(super) const SIGNAL: Integer = Integer::new("signal", "kill: signal number.", 1..=31).default(KILL);
pub(super) const STDOUT_OFFSET: Integer = Integer::new(
    "stdout_offset",
    "poll: bytes to skip. Pass stdout_bytes of the last poll to get only new output.",
    0..=MAX_OFFSET,
)
.default(0);
pub(super) const STDERR_OFFSET: Integer =
    Integer::new("stderr_offset", "poll: the same for stderr.", 0..=MAX_OFFSET).default(0);
pub(super) const WAIT_SECS: Integer =
    Integer::new("wait_secs", "poll: wait up to this long for the job to end.", 0..=60).default(0);

/// A poll of one job.
pub(super) struct Poll {
    pub(super) id: u64,
    /// Offsets in stdout and stderr.
    pub(super) offsets: [u64; 2],
    pub(super) wait_secs: u64,
}

pub(super) async fn start(guest: &Guest, command: Command) -> Result<Answer, Failure> {
    let id = guest.start_job(command).await.map_err(job_failure)?;
    Ok(Answer::json(json!({ "job_id": id, "status": "started" })))
}

pub(super) async fn poll(guest: &Guest, poll: Poll, progress: &Reporter) -> Result<Answer, Failure> {
    let (id, offsets) = (poll.id, poll.offsets);
    let budget = Budget::of(None, 1);
    let state = with_heartbeat(guest.poll_job(query(poll, budget)), progress).await.map_err(job_failure)?;
    Ok(Answer::json(job_view(id, state, offsets, budget)))
}

/// The state of a job, with its output from the beginning.
pub(crate) async fn show(guest: &Guest, id: u64) -> Result<Value, Failure> {
    let (offsets, budget) = ([0, 0], Budget::RESOURCE);
    let state =
        guest.poll_job(query(Poll { id, offsets, wait_secs: 0 }, budget)).await.map_err(job_failure)?;
    Ok(job_view(id, state, offsets, budget))
}

fn query(poll: Poll, budget: Budget) -> JobQuery {
    JobQuery {
        id: poll.id,
        stdout_offset: poll.offsets[0],
        stderr_offset: poll.offsets[1],
        head_bytes: budget.head_bytes(),
        tail_bytes: budget.tail_bytes(),
        wait: Duration::from_secs(poll.wait_secs),
    }
}

/// A job that survives its signal is not reported as killed.
pub(super) async fn kill(guest: &Guest, id: u64, signal: u64) -> Result<Answer, Failure> {
    let number = i32::try_from(signal).unwrap_or(i32::MAX);
    let running = guest.kill_job(id, number).await.map_err(job_failure)?;
    let status = if running { "running" } else { "killed" };
    Ok(Answer::json(json!({ "job_id": id, "signal": signal, "status": status })))
}

pub(super) async fn list(guest: &Guest) -> Result<Answer, Failure> {
    let jobs = guest.list_jobs().await.map_err(job_failure)?;
    Ok(Answer::array("jobs", jobs.iter().map(view).collect()))
}

fn view(job: &JobSummary) -> Value {
    json!({
        "job_id": job.id,
        "command": job.command,
        "running": job.running,
        "exit_code": (!job.running).then(|| exit_code(job.exit_code, job.signal)),
        "seconds": job.duration.as_secs(),
        "stdout_bytes": job.stdout_bytes,
        "stderr_bytes": job.stderr_bytes,
    })
}
