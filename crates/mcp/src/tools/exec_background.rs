//! `exec_background`: runs commands that go on while the client does something else.

use agentiso_core::names::WorkspaceRef;
use agentiso_core::rate::RateCategory;
use agentiso_daemon::Command;
use serde_json::{Value, json};

use super::command::{COMMAND, ENV, WORKDIR};
use super::jobs::{self, JOB_ID, SIGNAL, STDERR_OFFSET, STDOUT_OFFSET, WAIT_SECS};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Choice, Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Start,
    Poll,
    Kill,
    List,
}

const ACTION: Choice<Action> = Choice::new(
    "action",
    "start needs command; poll and kill need job_id.",
    &[("start", Action::Start), ("poll", Action::Poll), ("kill", Action::Kill), ("list", Action::List)],
)
.default("start");

pub(crate) const TOOL: Tool = Tool {
    name: "exec_background",
    title: "Run commands in the background",
    description: "Run a command in the background: a server, a long build. poll returns its output so far, \
                  and exit_code once it has ended; kill ends it and everything it started. Jobs outlive your \
                  session. For short commands use exec.",
    slots: &[
        Slot::Optional(&ACTION),
        Slot::Target(&WORKSPACE),
        Slot::Optional(&COMMAND),
        Slot::Optional(&WORKDIR),
        Slot::Optional(&ENV),
        Slot::Optional(&JOB_ID),
        Slot::Optional(&SIGNAL),
        Slot::Optional(&STDOUT_OFFSET),
        Slot::Optional(&STDERR_OFFSET),
        Slot::Optional(&WAIT_SECS),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

/// Each action gives some of these.
fn output() -> Value {
    let (text, integer) = (schema::optional("string"), schema::optional("integer"));
    json!({
        "job_id": integer, "status": text, "running": schema::optional("boolean"),
        "exit_code": { "type": ["integer", "null"], "optional": true }, "stdout": text, "stderr": text,
        "stdout_bytes": integer, "stderr_bytes": integer, "signal": integer, "jobs": schema::optional("array"),
    })
}

enum Work {
    Start(Command),
    Poll(jobs::Poll),
    Kill { id: u64, signal: u64 },
    List,
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let action = args.optional(&ACTION).map(|action| action.unwrap_or(Action::Start));
    let workspace = args.target(&WORKSPACE, &call.implied);
    let command = match action {
        Some(Action::Start) => args.required(&COMMAND).map(Some),
        Some(Action::Poll | Action::Kill | Action::List) | None => args.optional(&COMMAND),
    };
    let workdir = args.optional(&WORKDIR);
    let env = args.optional(&ENV);
    let job_id = match action {
        Some(Action::Poll | Action::Kill) => args.required(&JOB_ID).map(Some),
        Some(Action::Start | Action::List) | None => args.optional(&JOB_ID),
    };
    let signal = args.optional(&SIGNAL);
    let stdout_offset = args.optional(&STDOUT_OFFSET);
    let stderr_offset = args.optional(&STDERR_OFFSET);
    let wait_secs = args.optional(&WAIT_SECS);
    let (workspace, work) = args.finish((|| {
        let (env, workdir, signal) = (env?.unwrap_or_default(), workdir?, signal?);
        let offsets = [stdout_offset?.unwrap_or(0), stderr_offset?.unwrap_or(0)];
        let wait_secs = wait_secs?.unwrap_or(0);
        let work = match (action?, command?, job_id?) {
            (Action::Start, Some(command), _) => Work::Start(Command { command, workdir, env }),
            (Action::Poll, _, Some(id)) => Work::Poll(jobs::Poll { id, offsets, wait_secs }),
            (Action::Kill, _, Some(id)) => Work::Kill { id, signal: signal.unwrap_or(jobs::KILL) },
            (Action::List, _, _) => Work::List,
            (Action::Start, None, _) | (Action::Poll | Action::Kill, _, None) => return None,
        };
        Some((workspace?, work))
    })())?;
    Ok(Box::pin(run(call, workspace, work)))
}

async fn run(call: Call, workspace: WorkspaceRef, work: Work) -> Result<Answer, Failure> {
    if matches!(work, Work::Start(_)) {
        call.session.charge(RateCategory::Exec, 1)?;
    }
    let guest = call.session.guest(&workspace).await?;
    match work {
        Work::Start(command) => jobs::start(&guest, command).await,
        Work::Poll(poll) => jobs::poll(&guest, poll, &call.progress).await,
        Work::Kill { id, signal } => jobs::kill(&guest, id, signal).await,
        Work::List => jobs::list(&guest).await,
    }
}
