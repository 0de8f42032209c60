//! Code that all tools that run commands share: parameters, the form of output, and the heartbeat of long commands.

use std::future::Future;
use std::time::Duration;

use agentiso_daemon::{Captured, JobState, OpError};
use bytes::Bytes;
use serde_json::{Value, json};

use super::shared::MAX_COMMAND;
use crate::answer::Failure;
use crate::args::{Env, GuestFile, Integer, Text};
use crate::progress::Reporter;
use crate::truncate::{self, Budget};

/// The guest keeps no more bytes of a stream.
const MAX_OUTPUT: u64 = 2 * 1024 * 1024;

/// Interval at which a client that wants progress learns that a command still runs.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// One day.
pub(super) const MAX_SECS: u64 = 86_400;

pub(super) const COMMAND: Text =
    Text::new("command", "Run by /bin/sh -c as root, with empty stdin.", MAX_COMMAND);
pub(super) const WORKDIR: GuestFile = GuestFile::new("workdir", "Directory to run in. Default: /root.");
pub(super) const ENV: Env =
    Env { name: "env", about: "Variables. PATH, IFS, ENV, BASH_ENV and LD_* are refused." };
pub(super) const MAX_OUTPUT_BYTES: Integer = Integer::new(
    "max_output_bytes",
    "First bytes of stdout and of stderr to return. Default: about 10 KB, start and end.",
    1..=MAX_OUTPUT,
);

/// Advice on getting more output of a command that has ended.
pub(super) const REST: [&str; 2] =
    ["for more, set max_output_bytes, or write to a file and use file_read with offset"; 2];

/// Advice on getting more output of a job.
const REST_OF_JOB: [&str; 2] = ["use stdout_offset for the rest", "use stderr_offset for the rest"];

/// A shell reports death by a signal as 128 plus the signal's number; so do answers, which also name the signal.
pub(super) fn exit_code(exit_code: Option<i32>, signal: Option<i32>) -> i32 {
    match (exit_code, signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => -1,
    }
}

/// A job as all answers show it: its state, its output beyond the offsets, and the offsets to continue from.
pub(super) fn job_view(id: u64, state: JobState, [stdout, stderr]: [u64; 2], budget: Budget) -> Value {
    let running = state.running;
    let (out, err) =
        (without_partial_character(state.stdout, running), without_partial_character(state.stderr, running));
    let [out_text, err_text] = budget.cut([&out, &err], REST_OF_JOB);
    let mut view = json!({
        "job_id": id,
        "running": running,
        "exit_code": (!running).then(|| exit_code(state.exit_code, state.signal)),
        "stdout": out_text,
        "stderr": err_text,
        "stdout_bytes": stdout.saturating_add(out.total_bytes),
        "stderr_bytes": stderr.saturating_add(err.total_bytes),
    });
    if let Some(signal) = state.signal {
        view["signal"] = signal.into();
    }
    view
}

/// Removes a character of which a running command has printed only the beginning: the rest will come.
fn without_partial_character(mut output: Captured, running: bool) -> Captured {
    let last: &mut Bytes = if output.tail.is_empty() { &mut output.head } else { &mut output.tail };
    let unfinished = if running { truncate::unfinished(last) } else { 0 };
    last.truncate(last.len() - unfinished);
    output.total_bytes = output.total_bytes.saturating_sub(unfinished as u64);
    output
}

/// A failure of a tool about jobs, with advice for refusals of the guest.
pub(super) fn job_failure(error: OpError) -> Failure {
    let failure = Failure::from(error);
    match failure.code {
        "no_job" => {
            failure.with_hint("action list shows all jobs; a stop or restore of the workspace ends them")
        }
        "busy" => failure.with_hint("wait for a job to end, or kill one"),
        _ => failure,
    }
}

/// Waits for a command and meanwhile reports that it still runs, if the client wants progress.
pub(super) async fn with_heartbeat<T>(command: impl Future<Output = T>, progress: &Reporter) -> T {
    if !progress.is_wanted() {
        return command.await;
    }
    tokio::pin!(command);
    progress.report("the command is running", None);
    let begun = tokio::time::Instant::now();
    let mut beat = tokio::time::interval_at(begun + HEARTBEAT, HEARTBEAT);
    loop {
        // The outcome first: a report about a command that has ended would be wrong.
        tokio::select! {
            biased;
            outcome = &mut command => return outcome,
            now = beat.tick() => {
                let seconds = now.duration_since(begun).as_secs();
                progress.report(&format!("the command has been running for {seconds} s"), None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(bytes: &[u8]) -> Captured {
        Captured { head: Bytes::copy_from_slice(bytes), tail: Bytes::new(), total_bytes: bytes.len() as u64 }
    }

    #[test]
    fn incomplete_character_is_held_back_while_running() {
        let state = JobState { running: true, stdout: printed(b"a\xc3"), ..JobState::default() };
        let view = job_view(3, state, [10, 0], Budget::Requested(100));
        assert_eq!((&view["stdout"], &view["stdout_bytes"]), (&json!("a"), &json!(11)));
        assert_eq!((&view["exit_code"], &view["running"]), (&Value::Null, &json!(true)));
        let state = JobState { exit_code: Some(0), stdout: printed(b"a\xc3"), ..JobState::default() };
        let view = job_view(3, state, [0, 0], Budget::Requested(100));
        assert_eq!((&view["stdout"], &view["stdout_bytes"]), (&json!("a\u{fffd}"), &json!(2)));
    }

    #[test]
    fn killed_job_exits_with_128_plus_signal() {
        let state = JobState { signal: Some(9), ..JobState::default() };
        let view = job_view(1, state, [0, 0], Budget::Requested(100));
        assert_eq!((&view["exit_code"], &view["signal"]), (&json!(137), &json!(9)));
        assert_eq!(
            (exit_code(Some(3), None), exit_code(None, Some(15)), exit_code(None, None)),
            (3, 143, -1)
        );
    }

    #[tokio::test]
    async fn heartbeat_returns_the_result_without_a_listener() {
        assert_eq!(with_heartbeat(async { 5 }, &Reporter::none()).await, 5);
    }
}
