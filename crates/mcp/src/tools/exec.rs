//! `exec`: a shell command in a workspace.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::GuestPath;
use agentiso_core::rate::RateCategory;
use agentiso_daemon::{ExecOutcome, ExecSpec, OpError};
use serde_json::{Value, json};

use super::shared::{MAX_COMMAND, WORKSPACE};
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Env, GuestFile, Integer, Invalid, Reader, Slot, Text};
use crate::progress::Reporter;
use crate::registry::{Call, Hints, Running, Tool};
use crate::truncate;

const DEFAULT_TIMEOUT_SECS: u64 = 120;
const DEFAULT_OUTPUT: u64 = 262_144;

/// The guest keeps no more of a stream.
const MAX_OUTPUT: u64 = 2 * 1024 * 1024;

/// How often a client that wants progress hears that a command still runs.
const HEARTBEAT: Duration = Duration::from_secs(5);

const COMMAND: Text = Text {
    name: "command",
    about: "Run by /bin/sh -c as root, without input.",
    min: 1,
    max: MAX_COMMAND,
    nul: false,
};
const TIMEOUT_SECS: Integer = Integer {
    name: "timeout_secs",
    about: "Kill it and everything it started after this time.",
    min: 1,
    max: 86_400,
    default: Some(DEFAULT_TIMEOUT_SECS),
};
const WORKDIR: GuestFile = GuestFile { name: "workdir", about: "Absolute path to run in. Default: /root." };
const ENV: Env =
    Env { name: "env", about: "Environment variables. PATH, IFS, ENV, BASH_ENV and LD_* are refused." };
const MAX_OUTPUT_BYTES: Integer = Integer {
    name: "max_output_bytes",
    about: "Most bytes of stdout, and of stderr, to return. Of longer output you get beginning and end.",
    min: 1,
    max: MAX_OUTPUT,
    default: Some(DEFAULT_OUTPUT),
};

pub(crate) const TOOL: Tool = Tool {
    name: "exec",
    title: "Run a command",
    description: "Run a shell command in a workspace and wait for it. Returns exit_code, stdout and stderr; a non-zero \
                  exit_code is not an error. Every call is a new shell: use workdir and env, or cd within the command. \
                  To write files use file_write.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Required(&COMMAND),
        Slot::Optional(&TIMEOUT_SECS),
        Slot::Optional(&WORKDIR),
        Slot::Optional(&ENV),
        Slot::Optional(&MAX_OUTPUT_BYTES),
    ],
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({
        "exit_code": schema::integer(), "stdout": schema::text(), "stderr": schema::text(),
        "signal": { "type": "integer", "optional": true },
    })
}

struct Input {
    workspace: WorkspaceRef,
    command: String,
    timeout_secs: u64,
    workdir: Option<GuestPath>,
    env: BTreeMap<String, String>,
    max_output: u64,
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let command = args.required(&COMMAND);
    let timeout_secs = args.optional(&TIMEOUT_SECS);
    let workdir = args.optional(&WORKDIR);
    let env = args.optional(&ENV);
    let max_output = args.optional(&MAX_OUTPUT_BYTES);
    let input = args.finish((|| {
        Some(Input {
            workspace: workspace?,
            command: command?,
            timeout_secs: timeout_secs?.unwrap_or(DEFAULT_TIMEOUT_SECS),
            workdir: workdir?,
            env: env?.unwrap_or_default(),
            max_output: max_output?.unwrap_or(DEFAULT_OUTPUT),
        })
    })())?;
    Ok(Box::pin(run(input, call)))
}

async fn run(input: Input, call: Call) -> Result<Answer, Failure> {
    let Input { workspace, command, timeout_secs, workdir, env, max_output } = input;
    call.session.charge(RateCategory::Exec, 1)?;
    let guest = call.session.guest(&workspace).await?;
    let spec = ExecSpec {
        command,
        workdir,
        env,
        timeout: Some(Duration::from_secs(timeout_secs)),
        head_bytes: max_output,
        tail_bytes: truncate::tail_budget(max_output),
        stream: false,
    };
    let outcome = with_heartbeat(guest.exec(spec), &call.progress).await?;
    let stdout = truncate::cut(&outcome.stdout, max_output);
    let stderr = truncate::cut(&outcome.stderr, max_output);
    if outcome.timed_out {
        return Err(timed_out(guest.name().as_str(), timeout_secs, stdout, stderr));
    }
    Ok(Answer::json(view(&outcome, stdout, stderr)))
}

/// A shell reports death by a signal as 128 and the signal's number; so do we, and say which signal it was.
fn view(outcome: &ExecOutcome, stdout: String, stderr: String) -> Value {
    let exit_code = match (outcome.exit_code, outcome.signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => -1,
    };
    let mut view = json!({ "exit_code": exit_code, "stdout": stdout, "stderr": stderr });
    if let Some(signal) = outcome.signal {
        view["signal"] = signal.into();
    }
    view
}

fn timed_out(workspace: &str, seconds: u64, stdout: String, stderr: String) -> Failure {
    let message = format!(
        "the command timed out after {seconds} s in workspace {workspace}; it and all it had started were killed"
    );
    let mut failure = Failure::new("timed_out", message).with_hint(
        "raise timeout_secs, or start long work in the background with its output in a file: nohup CMD >/tmp/log 2>&1 &",
    );
    failure.appendix = format!("\n\nstdout so far:\n{stdout}\n\nstderr so far:\n{stderr}");
    failure.details.push(("timeout_secs", seconds.into()));
    failure.details.push(("stdout", stdout.into()));
    failure.details.push(("stderr", stderr.into()));
    failure
}

/// Waits for a command and tells a client that wants to know that it is not forgotten.
async fn with_heartbeat(
    command: impl Future<Output = Result<ExecOutcome, OpError>>,
    progress: &Reporter,
) -> Result<ExecOutcome, OpError> {
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

    #[test]
    fn death_by_a_signal_is_128_and_the_signal() {
        let killed = ExecOutcome { signal: Some(9), ..ExecOutcome::default() };
        assert_eq!(
            view(&killed, String::new(), "x".to_owned()),
            json!({"exit_code": 137, "stdout": "", "stderr": "x", "signal": 9})
        );
    }

    #[test]
    fn a_timeout_gives_the_seconds_and_the_output_so_far_in_both_forms() {
        let result = timed_out("web", 7, "half".to_owned(), "oops".to_owned()).into_result();
        let structured = result.structured_content.unwrap();
        assert_eq!(
            (structured["code"].as_str(), structured["stdout"].as_str()),
            (Some("timed_out"), Some("half"))
        );
        let text = result.content[0].as_text().unwrap().text.clone();
        for part in ["timed out after 7 s", "half", "oops", "Hint: "] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(result.is_error, Some(true));
    }

    #[tokio::test]
    async fn no_report_is_made_for_a_command_nobody_watches() {
        let outcome = with_heartbeat(async { Ok(ExecOutcome::default()) }, &Reporter::none()).await;
        assert_eq!(outcome.unwrap(), ExecOutcome::default());
    }
}
