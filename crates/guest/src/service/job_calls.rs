//! Calls about jobs and about the stored environment variables.

use std::time::Duration;

use agentiso_protocol::schema::v1;
use agentiso_protocol::{ErrorCode, limits};
use tokio::time::timeout;
use tonic::{Request, Response, Status};

use super::{Agent, Answer, exec_status, invalid, permit};
use crate::exec;
use crate::jobs::{JobError, Pending};

fn job_status(error: &JobError) -> Status {
    let code = match error {
        JobError::Start(error) => return exec_status(error),
        JobError::TooMany => ErrorCode::Busy,
        JobError::Unknown { .. } => ErrorCode::NoJob,
        JobError::Signal(_) => ErrorCode::Invalid,
    };
    code.status(error.to_string())
}

impl Agent {
    fn begin_job(&self, request: v1::StartJobRequest) -> Result<Pending, Status> {
        self.ready()?;
        let request = exec::check_job(request, &self.variables).map_err(invalid)?;
        self.jobs.start(&request).map_err(|error| job_status(&error))
    }

    pub(super) fn job_started(&self, request: Request<v1::StartJobRequest>) -> Answer<v1::StartJobResponse> {
        let job_id = self.begin_job(request.into_inner())?.publish();
        Ok(Response::new(v1::StartJobResponse { job_id }))
    }

    pub(super) async fn job_polled(
        &self,
        request: Request<v1::PollJobRequest>,
    ) -> Answer<v1::PollJobResponse> {
        let request = request.into_inner();
        // If too many polls wait already, this one is answered at once, which the protocol allows.
        let slot = self.waiting_polls.try_acquire();
        let wait_ms = if slot.is_ok() { request.wait_ms.min(limits::MAX_POLL_WAIT_MS) } else { 0 };
        let state = self.jobs.poll(&request, Duration::from_millis(wait_ms.into())).await;
        state.map(Response::new).map_err(|error| job_status(&error))
    }

    pub(super) async fn job_killed(
        &self,
        request: Request<v1::KillJobRequest>,
    ) -> Answer<v1::KillJobResponse> {
        let v1::KillJobRequest { job_id, signal } = request.into_inner();
        let running = self.jobs.kill(job_id, signal).await.map_err(|error| job_status(&error))?;
        Ok(Response::new(v1::KillJobResponse { running }))
    }

    pub(super) async fn run_or_keep(
        &self,
        request: Request<v1::ExecOrJobRequest>,
    ) -> Answer<v1::ExecOrJobResponse> {
        let _permit = permit(&self.execs, "commands")?;
        let request = request.into_inner();
        let kept = request.head_bytes.checked_add(request.tail_bytes);
        if kept.is_none_or(|kept| kept > limits::MAX_CAPTURE_BYTES) {
            return Err(invalid(exec::RequestError::Capture));
        }
        if !(1..=limits::MAX_EXEC_TIMEOUT_MS).contains(&request.job_after_ms) {
            return Err(invalid(exec::RequestError::Timeout));
        }
        let command = request.command.ok_or_else(|| invalid("the command is missing"))?;
        // Killed if this call is dropped before the command becomes a job.
        let pending = self.begin_job(command)?;
        let ended = timeout(Duration::from_millis(request.job_after_ms), pending.ended()).await.is_ok();
        let state = pending.state(request.head_bytes as usize, request.tail_bytes as usize);
        // The command may have ended since the timeout. Then the answer is complete, and no job is needed.
        let job_id = (!ended && state.running).then(|| pending.publish());
        Ok(Response::new(v1::ExecOrJobResponse { job_id, state: Some(state) }))
    }

    pub(super) fn env_set(&self, request: Request<v1::SetEnvRequest>) -> Answer<v1::SetEnvResponse> {
        self.ready()?;
        let total = self.variables.add(request.into_inner().vars).map_err(invalid)?;
        Ok(Response::new(v1::SetEnvResponse { total: u32::try_from(total).unwrap_or(u32::MAX) }))
    }
}
