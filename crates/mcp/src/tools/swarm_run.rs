//! `swarm_run`: runs tasks in forks at once and merges their commits into one workspace.

use std::time::Duration;

use agentiso_core::rate::RateCategory;
use agentiso_daemon::{SwarmDone, SwarmMerge, SwarmMerged, SwarmRequest, TaskDone, TaskOutcome};
use agentiso_git::merge::Strategy;
use serde_json::{Value, json};

use super::shared::MAX_COMMAND;
use super::view::schema;
use super::workspace_merge::{self, STRATEGIES};
use crate::answer::{Answer, Failure};
use crate::args::{
    Choice, Env, Flag, Integer, Invalid, Reader, Slot, Snapshot, Tasks, Text, VaultQueries, Workspace,
};
use crate::registry::{Call, Hints, Running, Tool};
use crate::truncate::Budget;

const MAX_TASKS: usize = 20;
const DEFAULT_PARALLEL: u64 = 4;
const DEFAULT_TIMEOUT_SECS: u64 = 600;
const MAX_SHARED_CONTEXT: usize = 1024 * 1024;

/// Advice on getting more of a worker's output.
const REST: [&str; 2] = ["for more, have the task commit it as a file, or set cleanup to false"; 2];

const GOLDEN: Workspace = Workspace::new("golden_workspace", "Workspace to fork the workers from.");
const SNAPSHOT_NAME: Snapshot = Snapshot::new("snapshot_name", "Its snapshot to fork.");
const TASKS: Tasks = Tasks {
    name: "tasks",
    about: "Commands to run, each in its own fork. Default workdir: /workspace.",
    max: MAX_TASKS,
    max_command: MAX_COMMAND,
};
const ENV_VARS: Env = Env { name: "env_vars", about: "Variables for all tasks." };
const MERGE_STRATEGY: Choice<Strategy> =
    Choice::new("merge_strategy", "Merge commits of successful tasks, as workspace_merge does.", STRATEGIES);
const MERGE_TARGET: Workspace = Workspace::new("merge_target", "Default: golden_workspace.");
const MAX_PARALLEL: Integer =
    Integer::new("max_parallel", "Tasks to run at once.", 1..=MAX_TASKS as u64).default(DEFAULT_PARALLEL);
const TIMEOUT_SECS: Integer =
    Integer::new("timeout_secs", "Time limit per task.", 1..=86_400).default(DEFAULT_TIMEOUT_SECS);
const CLEANUP: Flag = Flag::new("cleanup", "Destroy the workers.").default(true);
const ALLOW_INTERNET: Flag = Flag::new("allow_internet", "Default: like golden_workspace.");
const VAULT_CONTEXT: VaultQueries = VaultQueries {
    name: "vault_context",
    about: "Notes for all tasks, as {kind: search or read, query}. Ignored without a vault.",
    max: MAX_TASKS,
};
const SHARED_CONTEXT: Text = Text {
    min: 0,
    nul: true,
    ..Text::new("shared_context", "Text for all tasks, in the file $SHARED_CONTEXT.", MAX_SHARED_CONTEXT)
};
const MCP_BRIDGE: Flag = Flag::new("mcp_bridge", "Let each worker use MCP on itself.").default(false);

pub(crate) const TOOL: Tool = Tool {
    name: "swarm_run",
    title: "Run tasks in forks",
    description: "Run up to 20 tasks, each in a fork of a snapshot, and optionally merge their commits. \
                  Returns when all are done; the workers are destroyed, also if you cancel.",
    slots: &[
        Slot::Required(&GOLDEN),
        Slot::Required(&SNAPSHOT_NAME),
        Slot::Required(&TASKS),
        Slot::Optional(&ENV_VARS),
        Slot::Optional(&MERGE_STRATEGY),
        Slot::Optional(&MERGE_TARGET),
        Slot::Optional(&MAX_PARALLEL),
        Slot::Optional(&TIMEOUT_SECS),
        Slot::Optional(&CLEANUP),
        Slot::Optional(&ALLOW_INTERNET),
        Slot::Optional(&VAULT_CONTEXT),
        Slot::Optional(&SHARED_CONTEXT),
        Slot::Optional(&MCP_BRIDGE),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({
        "swarm_id": schema::text(), "tasks": schema::list(), "summary": schema::object(),
        "merge": schema::optional("object"),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let golden = args.required(&GOLDEN);
    let snapshot = args.required(&SNAPSHOT_NAME);
    let tasks = args.required(&TASKS);
    let env = args.optional(&ENV_VARS);
    let strategy = args.optional(&MERGE_STRATEGY);
    let target = args.optional(&MERGE_TARGET);
    let max_parallel = args.optional(&MAX_PARALLEL);
    let timeout = args.optional(&TIMEOUT_SECS);
    let cleanup = args.optional(&CLEANUP);
    let allow_internet = args.optional(&ALLOW_INTERNET);
    let vault_context = args.optional(&VAULT_CONTEXT);
    let shared_context = args.optional(&SHARED_CONTEXT);
    let mcp_bridge = args.optional(&MCP_BRIDGE);
    if let (Some(None), Some(Some(_))) = (&strategy, &target) {
        args.complain(MERGE_TARGET.name, "needs merge_strategy".to_owned());
    }
    let request = args.finish((|| {
        let target = target?;
        Some(SwarmRequest {
            golden: golden?,
            snapshot: snapshot?,
            name_prefix: None,
            tasks: tasks?,
            env: env?.unwrap_or_default(),
            merge: strategy?.map(|strategy| SwarmMerge { strategy, target }),
            max_parallel: usize::try_from(max_parallel?.unwrap_or(DEFAULT_PARALLEL)).ok()?,
            timeout: Duration::from_secs(timeout?.unwrap_or(DEFAULT_TIMEOUT_SECS)),
            cleanup: cleanup?.unwrap_or(true),
            allow_internet: allow_internet?,
            shared_context: shared_context?,
            vault_queries: vault_context?.unwrap_or_default(),
            mcp_bridge: mcp_bridge?.unwrap_or(false),
        })
    })())?;
    Ok(Box::pin(run(request, call)))
}

async fn run(request: SwarmRequest, call: Call) -> Result<Answer, Failure> {
    let (timeout, mcp_bridge) = (request.timeout.as_secs(), request.mcp_bridge);
    call.session.charge(RateCategory::Create, 1)?;
    let done = call.session.swarm(request, &call.progress.as_progress()).await?;
    Ok(Answer::json(view(&done, timeout, mcp_bridge)))
}

fn view(done: &SwarmDone, timeout: u64, mcp_bridge: bool) -> Value {
    let mut tasks: Vec<&TaskDone> = done.tasks.iter().collect();
    tasks.sort_by(|a, b| a.name.cmp(&b.name));
    let succeeded = tasks.iter().filter(|task| task.succeeded()).count();
    let budget = Budget::of(None, tasks.len());
    let mut view = json!({
        "swarm_id": done.swarm_id,
        "tasks": tasks.iter().map(|task| task_view(task, timeout, budget)).collect::<Vec<_>>(),
        "summary": {
            "total_tasks": tasks.len(),
            "succeeded": succeeded,
            "failed": tasks.len() - succeeded,
            "total_elapsed_ms": millis(done.elapsed),
            "workers_destroyed": done.workers_destroyed,
            "mcp_bridge": mcp_bridge,
        },
    });
    if let Some(merge) = &done.merge {
        view["merge"] = merge_view(merge);
    }
    view
}

fn task_view(task: &TaskDone, timeout: u64, budget: Budget) -> Value {
    let (stdout, stderr) = match &task.outcome {
        TaskOutcome::Failed { reason } => (String::new(), reason.clone()),
        TaskOutcome::Ran(outcome) => {
            let [stdout, mut stderr] = budget.cut([&outcome.stdout, &outcome.stderr], REST);
            if outcome.timed_out {
                stderr.push_str(&format!("\n[the task timed out after {timeout} s and was killed]"));
            }
            (stdout, stderr)
        }
    };
    json!({
        "name": task.name,
        "workspace_id": task.workspace,
        "success": task.succeeded(),
        "exit_code": task.exit_code(),
        "stdout": stdout,
        "stderr": stderr,
        "elapsed_ms": millis(task.elapsed),
    })
}

fn merge_view(merge: &SwarmMerged) -> Value {
    let mut view = json!({ "strategy": merge.strategy.as_str(), "target_workspace": merge.target });
    match &merge.result {
        Ok(merged) => view["detail"] = workspace_merge::view(merged).to_string().into(),
        Err(error) => view["error"] = error.as_str().into(),
    }
    view
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
