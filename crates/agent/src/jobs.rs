//! Jobs in the guest, commands that may become jobs, and the variables that all commands get.

use std::collections::BTreeMap;
use std::time::Duration;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use agentiso_vm::{Command, ExecOrJob, JobQuery, JobState, JobSummary};

use super::client::{AgentClient, CALL_DEADLINE};
use super::error::AgentError;
use super::exec::{EXEC_MARGIN, captured, check_command, workdir};
use super::system::too_large;

impl AgentClient {
    /// Starts a job. It runs until it ends or is killed, independently of this connection. Returns its id.
    pub async fn start_job(&self, command: Command) -> Result<u64, AgentError> {
        let mut stub = self.stub::<v1::StartJobResponse>();
        let answer = stub.start_job(to_wire(command)?);
        Ok(self.answer("start_job", CALL_DEADLINE, answer).await?.job_id)
    }

    /// Returns the state of a job.
    pub async fn poll_job(&self, query: JobQuery) -> Result<JobState, AgentError> {
        const CALL: &str = "poll_job";
        let (head_bytes, tail_bytes) = within_capture(query.head_bytes, query.tail_bytes);
        let wait_ms = u32::try_from(query.wait.as_millis()).unwrap_or(u32::MAX).min(limits::MAX_POLL_WAIT_MS);
        let request = v1::PollJobRequest {
            job_id: query.id,
            stdout_offset: query.stdout_offset,
            stderr_offset: query.stderr_offset,
            head_bytes,
            tail_bytes,
            wait_ms,
        };
        let after = CALL_DEADLINE + Duration::from_millis(wait_ms.into());
        let mut stub = self.stub::<v1::PollJobResponse>();
        let answer = self.answer(CALL, after, stub.poll_job(request)).await?;
        state(CALL, answer, (head_bytes, tail_bytes))
    }

    /// Sends a signal to a job's process group and gives it a moment; true if it still runs.
    pub async fn kill_job(&self, id: u64, signal: i32) -> Result<bool, AgentError> {
        let mut stub = self.stub::<v1::KillJobResponse>();
        let answer = stub.kill_job(v1::KillJobRequest { job_id: id, signal });
        Ok(self.answer("kill_job", CALL_DEADLINE, answer).await?.running)
    }

    /// All jobs that the guest knows.
    pub async fn list_jobs(&self) -> Result<Vec<JobSummary>, AgentError> {
        const CALL: &str = "list_jobs";
        let mut stub = self.stub::<v1::ListJobsResponse>();
        let answer = self.answer(CALL, CALL_DEADLINE, stub.list_jobs(v1::ListJobsRequest {})).await?;
        if answer.jobs.len() > limits::MAX_JOBS {
            return Err(AgentError::violation(CALL, "more jobs than allowed"));
        }
        answer.jobs.into_iter().map(summary).collect()
    }

    /// Runs a command and waits for it; after `job_after` it becomes a job. Dropping the future before that kills it.
    pub async fn exec_or_job(
        &self,
        command: Command,
        job_after: Duration,
        head_bytes: u64,
        tail_bytes: u64,
    ) -> Result<ExecOrJob, AgentError> {
        const CALL: &str = "exec_or_job";
        let wanted = within_capture(head_bytes, tail_bytes);
        let job_after_ms = u64::try_from(job_after.as_millis()).unwrap_or(u64::MAX);
        let job_after_ms = job_after_ms.clamp(1, limits::MAX_EXEC_TIMEOUT_MS);
        let request = v1::ExecOrJobRequest {
            command: Some(to_wire(command)?),
            job_after_ms,
            head_bytes: wanted.0,
            tail_bytes: wanted.1,
        };
        let mut stub = self.stub::<v1::ExecOrJobResponse>();
        let after = Duration::from_millis(job_after_ms) + EXEC_MARGIN;
        let answer = self.answer(CALL, after, stub.exec_or_job(request)).await?;
        let state =
            answer.state.ok_or_else(|| AgentError::violation(CALL, "the command's state is missing"))?;
        let state = self::state(CALL, state, wanted)?;
        if state.running != answer.job_id.is_some() {
            return Err(AgentError::violation(CALL, "a command that neither ended nor became a job"));
        }
        Ok(ExecOrJob { job: answer.job_id, state })
    }

    /// Stores variables for all commands that are started later; all of them are set or none. Returns the number of
    /// stored variables.
    pub async fn set_env(&self, vars: BTreeMap<String, String>) -> Result<u32, AgentError> {
        let size = vars.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        too_large("the environment", size, limits::MAX_STORED_ENV_BYTES)?;
        let mut stub = self.stub::<v1::SetEnvResponse>();
        let request = v1::SetEnvRequest { vars: vars.into_iter().collect() };
        Ok(self.answer("set_env", CALL_DEADLINE, stub.set_env(request)).await?.total)
    }
}

fn to_wire(command: Command) -> Result<v1::StartJobRequest, AgentError> {
    check_command(&command.command, command.workdir.as_ref(), &command.env)?;
    Ok(v1::StartJobRequest {
        shell: command.command.into(),
        workdir: workdir(command.workdir.as_ref()),
        env: command.env.into_iter().collect(),
    })
}

fn within_capture(head: u64, tail: u64) -> (u64, u64) {
    let head = head.min(limits::MAX_CAPTURE_BYTES);
    (head, tail.min(limits::MAX_CAPTURE_BYTES - head))
}

fn state(
    call: &'static str,
    answer: v1::PollJobResponse,
    (head, tail): (u64, u64),
) -> Result<JobState, AgentError> {
    if answer.running && (answer.exit_code.is_some() || answer.signal.is_some()) {
        return Err(AgentError::violation(call, "a job that both runs and has ended"));
    }
    // Without a head, the tail may use the head's share as well.
    let output = |output: Option<v1::Captured>| {
        let headless = output.as_ref().is_some_and(|output| output.head.is_empty());
        captured(call, output, if headless { (0, head + tail) } else { (head, tail) })
    };
    Ok(JobState {
        running: answer.running,
        exit_code: answer.exit_code,
        signal: answer.signal,
        stdout: output(answer.stdout)?,
        stderr: output(answer.stderr)?,
        duration: Duration::from_micros(answer.duration_us),
    })
}

fn summary(job: v1::JobSummary) -> Result<JobSummary, AgentError> {
    if job.shell.len() > limits::MAX_JOB_TITLE_BYTES {
        return Err(AgentError::violation("list_jobs", "a command that is too long"));
    }
    Ok(JobSummary {
        id: job.job_id,
        command: String::from_utf8_lossy(&job.shell).into_owned(),
        running: job.running,
        exit_code: job.exit_code,
        signal: job.signal,
        stdout_bytes: job.stdout_bytes,
        stderr_bytes: job.stderr_bytes,
        duration: Duration::from_micros(job.duration_us),
    })
}

#[cfg(test)]
mod tests {
    use agentiso_protocol::schema::v1;

    use super::{state, summary};

    #[test]
    fn contradictory_job_answers_are_refused() {
        let good = v1::PollJobResponse { running: true, ..v1::PollJobResponse::default() };
        assert!(state("poll_job", good.clone(), (4, 2)).is_ok());
        assert!(
            state("poll_job", v1::PollJobResponse { exit_code: Some(0), ..good.clone() }, (4, 2)).is_err()
        );
        let output = |head: usize, tail: usize| {
            let (head, tail) = (vec![0; head].into(), vec![0; tail].into());
            let stdout = Some(v1::Captured { head, tail, total_bytes: 9 });
            state("poll_job", v1::PollJobResponse { stdout, ..good.clone() }, (4, 2))
        };
        assert!(output(4, 2).is_ok() && output(0, 6).is_ok());
        assert!(output(5, 0).is_err() && output(0, 7).is_err() && output(1, 3).is_err());
        let long = v1::JobSummary { shell: vec![0; 201].into(), ..v1::JobSummary::default() };
        assert!(summary(long).is_err());
    }
}
