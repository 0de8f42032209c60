//! Jobs of a running workspace, and what all its commands are given.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Guest;
use crate::error::OpError;
use crate::machines::{Command, ExecOrJob, JobQuery, JobState, JobSummary};

/// How long a guest is asked to wait for a job's end before it is asked again.
const END_WAIT: Duration = Duration::from_secs(60);

/// A guest that answers sooner than it was asked to is not asked more often than this.
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(1);

impl Guest {
    /// Starts a command that goes on by itself, as long as the machine does. Says its id.
    pub async fn start_job(&self, command: Command) -> Result<u64, OpError> {
        let _call = self.session.begin_call();
        self.alive("starting a job", self.agent.start_job(command)).await
    }

    pub async fn poll_job(&self, query: JobQuery) -> Result<JobState, OpError> {
        let _call = self.session.begin_call();
        self.alive("polling a job", self.agent.poll_job(query)).await
    }

    /// Returns when a job has ended; the guest tells. Waiting is not a call: a session that only waits is idle, and a guest
    /// that stands still is waited for.
    pub async fn job_end(&self, id: u64) -> Result<(), OpError> {
        loop {
            let again = Instant::now() + BETWEEN_QUESTIONS;
            let query = JobQuery { id, wait: END_WAIT, ..JobQuery::default() };
            if !self.living("waiting for a job", self.agent.poll_job(query)).await?.running {
                return Ok(());
            }
            tokio::time::sleep_until(again).await;
        }
    }

    /// Sends a signal to a job and everything it started; true if it still runs.
    pub async fn kill_job(&self, id: u64, signal: i32) -> Result<bool, OpError> {
        let _call = self.session.begin_call();
        self.alive("killing a job", self.agent.kill_job(id, signal)).await
    }

    pub async fn list_jobs(&self) -> Result<Vec<JobSummary>, OpError> {
        let _call = self.session.begin_call();
        self.alive("listing jobs", self.agent.list_jobs()).await
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
        let ran =
            self.alive("exec", self.agent.exec_or_job(command, job_after, head_bytes, tail_bytes)).await;
        let metrics = &self.session.shared().metrics;
        match &ran {
            Ok(ExecOrJob { job: None, state }) => metrics.executed(false, state.exit_code, begun.elapsed()),
            // It goes on, and nobody waits for its end.
            Ok(ExecOrJob { job: Some(_), .. }) => {}
            Err(_) => metrics.exec_failed(),
        }
        ran
    }

    /// Gives variables to all commands that are started from now on: all of them or none. They are kept in the guest's
    /// memory and nowhere else.
    pub async fn set_env(&self, vars: BTreeMap<String, String>) -> Result<(), OpError> {
        let _call = self.session.begin_call();
        self.alive("setting the environment", self.agent.set_env(vars)).await
    }
}
