//! Jobs of a guest in memory. Every one prints its command and then runs until it is killed.

use std::sync::Mutex;
use std::time::Duration;

use agentiso_daemon::{AgentFailure, Captured, Command, GuestCode, JobQuery, JobState, JobSummary};
use bytes::Bytes;
use tokio::sync::watch;

#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<Vec<Job>>);

#[derive(Clone, Debug)]
struct Job {
    command: String,
    killed: watch::Sender<bool>,
}

/// What an agent answers that does not know jobs.
pub(crate) fn old() -> AgentFailure {
    AgentFailure::Unsupported { call: "jobs" }
}

impl Jobs {
    pub(crate) fn start(&self, command: Command) -> u64 {
        let mut jobs = self.0.lock().expect("no panic");
        jobs.push(Job { command: command.command, killed: watch::Sender::new(false) });
        jobs.len() as u64
    }

    fn job(&self, id: u64) -> Result<Job, AgentFailure> {
        let jobs = self.0.lock().expect("no panic");
        let job = usize::try_from(id).ok().and_then(|id| jobs.get(id.checked_sub(1)?));
        let message = format!("there is no job {id}");
        job.cloned().ok_or(AgentFailure::Refused { code: GuestCode::NoJob, message })
    }

    pub(crate) async fn poll(&self, query: JobQuery) -> Result<JobState, AgentFailure> {
        let job = self.job(query.id)?;
        let mut killed = job.killed.subscribe();
        let _ = tokio::time::timeout(query.wait, killed.wait_for(|killed| *killed)).await;
        let running = !*job.killed.borrow();
        let printed = Bytes::from(job.command);
        let stdout = Captured { total_bytes: printed.len() as u64, head: printed, tail: Bytes::new() };
        Ok(JobState { running, signal: (!running).then_some(9), stdout, ..JobState::default() })
    }

    pub(crate) fn kill(&self, id: u64) -> Result<bool, AgentFailure> {
        self.job(id)?.killed.send_replace(true);
        Ok(false)
    }

    pub(crate) fn list(&self) -> Vec<JobSummary> {
        let jobs = self.0.lock().expect("no panic");
        let summary = |(at, job): (usize, &Job)| JobSummary {
            id: at as u64 + 1,
            command: job.command.clone(),
            running: !*job.killed.borrow(),
            exit_code: None,
            signal: None,
            stdout_bytes: job.command.len() as u64,
            stderr_bytes: 0,
            duration: Duration::ZERO,
        };
        jobs.iter().enumerate().map(summary).collect()
    }
}
