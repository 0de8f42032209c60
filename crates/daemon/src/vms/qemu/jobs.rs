//! Converts jobs between the types of this crate and those of `agentiso-host`.

use agentiso_host::agent;

use super::agent::captured;
use crate::vms::{Command, JobQuery, JobState, JobSummary};

pub(super) fn spec(command: Command) -> agent::JobSpec {
    agent::JobSpec {
        shell: command.command.into_bytes(),
        workdir: command.workdir.map(|path| path.as_str().as_bytes().to_vec()),
        env: command.env,
    }
}

pub(super) fn query(query: JobQuery) -> agent::JobQuery {
    agent::JobQuery {
        id: query.id,
        stdout_offset: query.stdout_offset,
        stderr_offset: query.stderr_offset,
        head_bytes: query.head_bytes,
        tail_bytes: query.tail_bytes,
        wait: query.wait,
    }
}

pub(super) fn state(state: agent::JobState) -> JobState {
    JobState {
        running: state.running,
        exit_code: state.exit_code,
        signal: state.signal,
        stdout: captured(state.stdout),
        stderr: captured(state.stderr),
        duration: state.duration,
    }
}

pub(super) fn summary(job: agent::JobSummary) -> JobSummary {
    JobSummary {
        id: job.id,
        command: String::from_utf8_lossy(&job.shell).into_owned(),
        running: job.running,
        exit_code: job.exit_code,
        signal: job.signal,
        stdout_bytes: job.stdout_bytes,
        stderr_bytes: job.stderr_bytes,
        duration: job.duration,
    }
}
