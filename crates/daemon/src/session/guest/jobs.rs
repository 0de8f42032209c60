//! Jobs of a running workspace, and the environment of all its commands.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Guest;
use crate::error::OpError;
use crate::vms::{Command, ExecOrJob, JobQuery, JobState, JobSummary};

/// The longest time that one request to the guest waits for a job's end; then it is repeated.
const END_WAIT: Duration = Duration::from_secs(60);

/// A guest that answers too early is not asked more often than this.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(1);

impl Guest {
    /// Starts a command that runs on by itself, as long as the VM does. Returns its id.
    pub async fn start_job(&self, command: Command) -> Result<u64, OpError> {
        let _call = self.session.begin_call();
        self.while_running("starting a job", self.agent.start_job(command)).await
    }

    pub async fn poll_job(&self, query: JobQuery) -> Result<JobState, OpError> {
        let _call = self.session.begin_call();
        self.while_running("polling a job", self.agent.poll_job(query)).await
    }

    /// Returns when a job has ended, as the guest reports it. Waiting is not a call: a session that only waits is
    /// idle, and a guest that stands still is waited for.
    pub async fn job_end(&self, id: u64) -> Result<(), OpError> {
        loop {
            let again = Instant::now() + BETWEEN_QUESTIONS;
            let query = JobQuery { id, wait: END_WAIT, ..JobQuery::default() };
            if !self.while_alive("waiting for a job", self.agent.poll_job(query)).await?.running {
                return Ok(());
            }
            tokio::time::sleep_until(again).await;
        }
    }

    /// Sends a signal to a job and everything it started; returns true if it still runs.
    pub async fn kill_job(&self, id: u64, signal: i32) -> Result<bool, OpError> {
        let _call = self.session.begin_call();
        self.while_running("killing a job", self.agent.kill_job(id, signal)).await
    }

    pub async fn list_jobs(&self) -> Result<Vec<JobSummary>, OpError> {
        let _call = self.session.begin_call();
        self.while_running("listing jobs", self.agent.list_jobs()).await
    }

    /// Runs a command; one that takes longer than `job_after` becomes a job. Dropping the future before that kills it.
    pub async fn exec_or_job(
        &self,
        command: Command,
        job_after: Duration,
        head_bytes: u64,
        tail_bytes: u64,
    ) -> Result<ExecOrJob, OpError> {
        let _call = self.session.begin_call();
        let begun = Instant::now();
        let ran = self
            .while_running("exec", self.agent.exec_or_job(command, job_after, head_bytes, tail_bytes))
            .await;
        let metrics = &self.session.shared().metrics;
        match &ran {
            Ok(ExecOrJob { job: None, state }) => metrics.executed(false, state.exit_code, begun.elapsed()),
            // The command runs on as a job, and its end is not awaited.
            Ok(ExecOrJob { job: Some(_), .. }) => {}
            Err(_) => metrics.exec_failed(),
        }
        ran
    }

    /// Sets variables for all commands that start later: all of them or none. They exist only in the guest's
    /// memory.
    pub async fn set_env(&self, vars: BTreeMap<String, String>) -> Result<(), OpError> {
        let _call = self.session.begin_call();
        self.while_running("setting the environment", self.agent.set_env(vars)).await
    }
}
