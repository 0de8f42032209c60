//! `exec_parallel`: runs commands in several workspaces at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::GuestPath;
use agentiso_core::rate::RateCategory;
use agentiso_daemon::{ExecOutcome, ExecSpec, Guest, OpError};
use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};

use super::command::{ENV, MAX_OUTPUT_BYTES, MAX_SECS, REST, WORKDIR, exit_code};
use super::shared::MAX_COMMAND;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{CommandSet, Commands, Integer, Invalid, Reader, Slot, Workspaces};
use crate::registry::{Call, Hints, Running, Tool};
use crate::truncate::Budget;

const MAX_WORKSPACES: usize = 20;
const DEFAULT_TIMEOUT_SECS: u64 = 300;

const WORKSPACE_IDS: Workspaces =
    Workspaces { name: "workspace_ids", about: "Names or UUIDs.", max: MAX_WORKSPACES };
const COMMANDS: Commands = Commands {
    name: "commands",
    about: "One command for all, or a list with one for each workspace.",
    max_items: MAX_WORKSPACES,
    max: MAX_COMMAND,
};
const TIMEOUT_SECS: Integer =
    Integer::new("timeout_secs", "Kill each command after this time.", 1..=MAX_SECS)
        .default(DEFAULT_TIMEOUT_SECS);

pub(crate) const TOOL: Tool = Tool {
    name: "exec_parallel",
    title: "Run commands in several workspaces",
    description: "Run commands in up to 20 workspaces at the same time, such as forks that try different \
                  ideas, and wait for all. A failure does not stop the others.",
    slots: &[
        Slot::Required(&WORKSPACE_IDS),
        Slot::Required(&COMMANDS),
        Slot::Optional(&TIMEOUT_SECS),
        Slot::Optional(&WORKDIR),
        Slot::Optional(&ENV),
        Slot::Optional(&MAX_OUTPUT_BYTES),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({ "results": schema::list(), "summary": schema::object() })
}

struct Input {
    /// Each workspace with its command.
    work: Vec<(WorkspaceRef, String)>,
    timeout_secs: u64,
    workdir: Option<GuestPath>,
    env: BTreeMap<String, String>,
    budget: Budget,
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspaces = args.required(&WORKSPACE_IDS);
    let commands = args.required(&COMMANDS);
    let timeout_secs = args.optional(&TIMEOUT_SECS);
    let workdir = args.optional(&WORKDIR);
    let env = args.optional(&ENV);
    let max_output = args.optional(&MAX_OUTPUT_BYTES);
    let work = match (workspaces, commands) {
        (Some(workspaces), Some(CommandSet::ForAll(command))) => {
            Some(workspaces.into_iter().map(|workspace| (workspace, command.clone())).collect())
        }
        (Some(workspaces), Some(CommandSet::ForEach(commands))) if workspaces.len() == commands.len() => {
            Some(workspaces.into_iter().zip(commands).collect())
        }
        (Some(workspaces), Some(CommandSet::ForEach(commands))) => {
            let (have, want) = (commands.len(), workspaces.len());
            let problem =
                format!("has {have} entries for {want} workspaces; give one for each, or one string for all");
            args.complain(COMMANDS.name, problem);
            None
        }
        (None, _) | (_, None) => None,
    };
    let input = args.finish((|| {
        let work: Vec<_> = work?;
        Some(Input {
            budget: Budget::of(max_output?, work.len()),
            work,
            timeout_secs: timeout_secs?.unwrap_or(DEFAULT_TIMEOUT_SECS),
            workdir: workdir?,
            env: env?.unwrap_or_default(),
        })
    })())?;
    Ok(Box::pin(run(input, call)))
}

async fn run(input: Input, call: Call) -> Result<Answer, Failure> {
    let Input { work, timeout_secs, workdir, env, budget } = input;
    call.session.charge(RateCategory::Exec, u32::try_from(work.len()).unwrap_or(u32::MAX))?;
    // All workspaces are found, owned and running before anything begins.
    let guests = try_join_all(work.iter().map(|(workspace, _)| call.session.guest(workspace))).await?;
    let begun = Instant::now();
    let (total, done) = (guests.len(), AtomicUsize::new(0));
    let (guests, done, progress) = (&guests, &done, &call.progress);
    let runs = guests.iter().zip(work).map(|(guest, (_, command))| {
        let spec = ExecSpec {
            command,
            workdir: workdir.clone(),
            env: env.clone(),
            timeout: Some(Duration::from_secs(timeout_secs)),
            head_bytes: budget.head_bytes(),
            tail_bytes: budget.tail_bytes(),
            stream: false,
        };
        async move {
            let outcome = guest.exec(spec).await;
            let ended = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress.report(
                &format!("{ended} of {total} commands have ended"),
                Some(ended as f32 / total as f32),
            );
            Entry::new(guest, outcome, timeout_secs, budget)
        }
    });
    let entries = super::command::with_heartbeat(join_all(runs), progress).await;
    let count = |wanted: End| entries.iter().filter(|entry| entry.end == wanted).count();
    let summary = json!({
        "total": total,
        "succeeded": count(End::Succeeded),
        "failed": count(End::Failed),
        "timed_out": count(End::TimedOut),
        "elapsed_ms": u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    let results: Vec<Value> = entries.into_iter().map(|entry| entry.view).collect();
    Ok(Answer::json(json!({ "results": results, "summary": summary })))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Succeeded,
    Failed,
    TimedOut,
}

struct Entry {
    view: Value,
    end: End,
}

impl Entry {
    fn new(guest: &Guest, outcome: Result<ExecOutcome, OpError>, seconds: u64, budget: Budget) -> Self {
        let mut view = json!({ "workspace_id": guest.id(), "workspace_name": guest.name() });
        let (code, stdout, stderr, end) = match outcome {
            Ok(outcome) => {
                let [stdout, stderr] = budget.cut([&outcome.stdout, &outcome.stderr], REST);
                if outcome.timed_out {
                    (-1, stdout, after_timeout(stderr, seconds), End::TimedOut)
                } else {
                    let code = exit_code(outcome.exit_code, outcome.signal);
                    (code, stdout, stderr, if code == 0 { End::Succeeded } else { End::Failed })
                }
            }
            Err(error) => (-1, String::new(), error.to_string(), End::Failed),
        };
        view["exit_code"] = code.into();
        view["stdout"] = stdout.into();
        view["stderr"] = stderr.into();
        view["timed_out"] = (end == End::TimedOut).into();
        Self { view, end }
    }
}

/// The output until the timeout, and a line about the timeout.
fn after_timeout(mut stderr: String, seconds: u64) -> String {
    if !stderr.is_empty() && !stderr.ends_with('\n') {
        stderr.push('\n');
    }
    stderr.push_str(&format!("the command timed out after {seconds} s and was killed"));
    stderr
}
