//! `exec`: runs a shell command in a workspace.

use std::collections::BTreeMap;
use std::time::Duration;

use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::GuestPath;
use agentiso_core::rate::RateCategory;
use agentiso_daemon::{Command, ExecOutcome, ExecSpec, Guest};
use serde_json::{Value, json};

use super::command::{
    COMMAND, ENV, MAX_OUTPUT_BYTES, MAX_SECS, REST, WORKDIR, exit_code, job_failure, job_view, with_heartbeat,
};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Integer, Invalid, Reader, Slot};
use crate::hint::Hint;
use crate::registry::{Call, Hints, Running, Tool};
use crate::truncate::Budget;

const DEFAULT_TIMEOUT_SECS: u64 = 120;

const TIMEOUT_SECS: Integer =
    Integer::new("timeout_secs", "Kill it and everything it started after this time.", 1..=MAX_SECS)
        .default(DEFAULT_TIMEOUT_SECS);
const BACKGROUND_AFTER: Integer = Integer::new(
    "background_after_secs",
    "After this time, return job_id and the output so far; the command continues in the background.",
    1..=MAX_SECS,
);

pub(crate) const TOOL: Tool = Tool {
    name: "exec",
    title: "Run a command",
    description: "Run a shell command in a workspace and wait for it. A non-zero exit_code is not an \
                  error. Every call is a new shell: use workdir and env, or cd within the command. To \
                  write files use file_write.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Required(&COMMAND),
        Slot::Optional(&TIMEOUT_SECS),
        Slot::Optional(&WORKDIR),
        Slot::Optional(&ENV),
        Slot::Optional(&MAX_OUTPUT_BYTES),
        Slot::Optional(&BACKGROUND_AFTER),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({
        "exit_code": schema::integer_or_null(), "stdout": schema::text(), "stderr": schema::text(),
        "signal": schema::optional("integer"), "job_id": schema::optional("integer"),
        "running": schema::optional("boolean"), "stdout_bytes": schema::optional("integer"),
        "stderr_bytes": schema::optional("integer"), "note": schema::optional_text(),
    })
}

struct Input {
    workspace: WorkspaceRef,
    command: String,
    limit: Limit,
    workdir: Option<GuestPath>,
    env: BTreeMap<String, String>,
    budget: Budget,
}

/// The treatment of a command that takes long.
enum Limit {
    KillAfter(u64),
    BackgroundAfter(u64),
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let command = args.required(&COMMAND);
    let timeout_secs = args.optional(&TIMEOUT_SECS);
    let workdir = args.optional(&WORKDIR);
    let env = args.optional(&ENV);
    let max_output = args.optional(&MAX_OUTPUT_BYTES);
    let background_after = args.optional(&BACKGROUND_AFTER);
    if let (Some(Some(timeout)), Some(Some(after))) = (timeout_secs, background_after)
        && after >= timeout
    {
        let problem = format!("must be less than timeout_secs ({timeout}); or leave timeout_secs out");
        args.complain(BACKGROUND_AFTER.name, problem);
    }
    let input = args.finish((|| {
        let limit = match (background_after?, timeout_secs?) {
            (Some(after), _) => Limit::BackgroundAfter(after),
            (None, timeout) => Limit::KillAfter(timeout.unwrap_or(DEFAULT_TIMEOUT_SECS)),
        };
        Some(Input {
            workspace: workspace?,
            command: command?,
            limit,
            workdir: workdir?,
            env: env?.unwrap_or_default(),
            budget: Budget::of(max_output?, 1),
        })
    })())?;
    Ok(Box::pin(run(input, call)))
}

async fn run(input: Input, call: Call) -> Result<Answer, Failure> {
    call.session.charge(RateCategory::Exec, 1)?;
    let guest = call.session.guest(&input.workspace).await?;
    match input.limit {
        Limit::KillAfter(seconds) => run_or_kill(input, seconds, &guest, &call).await,
        Limit::BackgroundAfter(seconds) => run_or_keep(input, seconds, &guest, &call).await,
    }
}

async fn run_or_kill(input: Input, seconds: u64, guest: &Guest, call: &Call) -> Result<Answer, Failure> {
    let Input { command, workdir, env, budget, .. } = input;
    let spec = ExecSpec {
        command,
        workdir,
        env,
        timeout: Some(Duration::from_secs(seconds)),
        head_bytes: budget.head_bytes(),
        tail_bytes: budget.tail_bytes(),
        stream: false,
    };
    let outcome = with_heartbeat(guest.exec(spec), &call.progress).await?;
    let [stdout, stderr] = budget.cut([&outcome.stdout, &outcome.stderr], REST);
    if outcome.timed_out {
        return Err(timed_out(guest.name().as_str(), seconds, stdout, stderr));
    }
    Ok(Answer::json(view(&outcome, stdout, stderr)))
}

async fn run_or_keep(input: Input, seconds: u64, guest: &Guest, call: &Call) -> Result<Answer, Failure> {
    let Input { command, workdir, env, budget, .. } = input;
    let (head, tail) = (budget.head_bytes(), budget.tail_bytes());
    let after = Duration::from_secs(seconds);
    let running = guest.exec_or_job(Command { command, workdir, env }, after, head, tail);
    let ended = with_heartbeat(running, &call.progress).await.map_err(job_failure)?;
    Ok(match ended.job {
        Some(id) => Answer::json(job_view(id, ended.state, [0, 0], budget)).with_note(format!(
            "The command is still running as job {id}. Poll or kill it with exec_background; stdout_offset \
             and stderr_offset skip the output you already have."
        )),
        None => {
            let [out, err] = budget.cut([&ended.state.stdout, &ended.state.stderr], REST);
            let (exit_code, signal) = (ended.state.exit_code, ended.state.signal);
            let outcome = ExecOutcome { exit_code, signal, ..ExecOutcome::default() };
            Answer::json(view(&outcome, out, err))
        }
    })
}

fn view(outcome: &ExecOutcome, stdout: String, stderr: String) -> Value {
    let exit_code = exit_code(outcome.exit_code, outcome.signal);
    let mut view = json!({ "exit_code": exit_code, "stdout": stdout, "stderr": stderr });
    if let Some(signal) = outcome.signal {
        view["signal"] = signal.into();
    }
    view
}

fn timed_out(workspace: &str, seconds: u64, stdout: String, stderr: String) -> Failure {
    let message = format!(
        "the command timed out after {seconds} s in workspace {workspace}; it and everything it started were killed"
    );
    let mut failure = Failure::new("timed_out", message).with_hint(
        Hint::new(
            "raise timeout_secs, or set background_after_secs to let it continue in the background, or start it \
             with `exec_background`",
        )
        .or("raise timeout_secs"),
    );
    failure.appendix = format!("\n\nstdout so far:\n{stdout}\n\nstderr so far:\n{stderr}");
    failure.details.push(("timeout_secs", seconds.into()));
    failure.details.push(("stdout", stdout.into()));
    failure.details.push(("stderr", stderr.into()));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_command_exits_with_128_plus_signal() {
        let killed = ExecOutcome { signal: Some(9), ..ExecOutcome::default() };
        assert_eq!(
            view(&killed, String::new(), "x".to_owned()),
            json!({"exit_code": 137, "stdout": "", "stderr": "x", "signal": 9})
        );
    }

    #[test]
    fn timeout_failure_includes_output_so_far() {
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
}
