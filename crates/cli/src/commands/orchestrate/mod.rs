//! `agentiso orchestrate`: runs a batch of prompts, each with an AI agent in a separate fork.
//!
//! ```text
//!  task file ─▶ checked ─▶ one swarm of the daemon: fork ─▶ agent ─▶ destroy ─▶ results on disk
//! ```
//!
//! The daemon does the work and cleans up, even if this command is interrupted.

mod agent;
mod results;
mod task_file;

use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use agentiso_core::config::Paths;
use agentiso_core::env;
use agentiso_daemon::control::swarm::{SwarmParams, SwarmTaskParams, SwarmTaskResult};
use agentiso_daemon::control::wire::Event;
use agentiso_daemon::{InstanceLock, LockError};

use crate::client::Client;
use crate::context::Context;
use crate::failure::{FAILED, Failure};
use crate::progress::Display;
use crate::{output, runtime};
use results::Results;
use task_file::TaskFile;

/// The time limit of each task, from the contract for task files.
const TIMEOUT_SECS: u64 = 300;

/// The beginning of the workers' names, from the contract for task files.
const PREFIX: &str = "orch";

/// The variable from which AI agents read their key.
const KEY: &str = "ANTHROPIC_API_KEY";

/// Run prompts with AI agents, each in a fork of a snapshot
///
/// The task file names a workspace and a snapshot to fork, and up to 20 tasks with one prompt each. In every fork, the AI agent
/// installed in the image is run with the prompt: claude if present, otherwise opencode. It has 300 seconds. The workers are
/// destroyed when all tasks have ended or this command is interrupted. The output of the AI agents is written to a directory
/// for each completed run in orchestrate-results. Only one run at a time is allowed per state directory.
///
/// The API key is passed from the variable to the environment of the AI agents; it is never written to a command line, log or
/// file. docs/orchestrate.md describes the task file.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso orchestrate --task-file tasks.toml --dry-run
  agentiso orchestrate --task-file tasks.toml
  agentiso orchestrate --task-file tasks.toml --api-key-env TEAM_KEY --max-parallel 4")]
pub(crate) struct Arguments {
    /// Task file (TOML)
    #[arg(long, value_name = "FILE")]
    task_file: PathBuf,
    /// Environment variable with the API key for the AI agents
    #[arg(long, value_name = "VAR", default_value = KEY)]
    api_key_env: String,
    /// Tasks to run at the same time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=20))]
    max_parallel: u64,
    /// Show what would be run without running it
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let tasks = TaskFile::read(&arguments.task_file)?;
    let key = std::env::var(&arguments.api_key_env).ok().filter(|key| !key.is_empty());
    if arguments.dry_run {
        output::line(&plan(&tasks, arguments, key.is_some()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(key) = key else {
        let sentence = format!(
            "environment variable {} is not set; it must hold the API key for the AI agents",
            arguments.api_key_env
        );
        return Err(Failure::usage(sentence).hint("set it, or name another variable with --api-key-env"));
    };
    let environment = BTreeMap::from([(KEY.to_owned(), key)]);
    let variables = environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    env::check(variables).map_err(|error| Failure::usage(error.to_string()))?;
    let _lock = lock_run(&context.config.paths)?;
    // Checked before any task runs, because its results could not be kept otherwise.
    let results = Results::prepare(Path::new("."))?;
    let params = params(&tasks, environment, arguments.max_parallel);
    let ended = runtime::block_on(run_swarm(context, params))??;
    let kept = results.write(&tasks, &ended)?;
    print_results(&ended, &kept)
}

/// Locks the state directory for one run at a time. Each run may use the whole quota of a session, and a second run
/// that was started by mistake would pay for its AI agents twice.
fn lock_run(paths: &Paths) -> Result<InstanceLock, Failure> {
    let unmade = |error| Failure::new(format!("cannot create {}: {error}", paths.data.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&paths.data).map_err(unmade)?;
    InstanceLock::acquire(&paths.orchestrate_lock(), "agentiso orchestrate").map_err(|error| {
        let hint = match &error {
            LockError::Held { .. } => "wait until it ends, or stop it; its workers are destroyed with it",
            LockError::Io { .. } => "make the state directory writable for your user",
        };
        Failure::new(error.to_string()).hint(hint)
    })
}

fn params(tasks: &TaskFile, env: BTreeMap<String, String>, max_parallel: u64) -> SwarmParams {
    let task = |task: &task_file::Task| SwarmTaskParams {
        name: task.name.to_string(),
        command: agent::command(&task.prompt),
        workdir: task.workdir.clone(),
        vault_context: task.vault_context.clone(),
    };
    SwarmParams {
        golden: tasks.golden_workspace.clone(),
        snapshot: tasks.snapshot_name.clone(),
        name_prefix: Some(PREFIX.to_owned()),
        tasks: tasks.tasks.iter().map(task).collect(),
        env,
        max_parallel,
        timeout_secs: TIMEOUT_SECS,
        mcp_bridge: tasks.mcp_bridge,
    }
}

/// Runs the swarm and returns the result of every task. Dropping the future makes the daemon end the tasks and destroy
/// their workers.
async fn run_swarm(context: &Context, mut params: SwarmParams) -> Result<Vec<SwarmTaskResult>, Failure> {
    let mut client = Client::open(context).await?;
    params.golden = client.resolve(&params.golden).await?;
    let workspaces = client.workspaces().await?;
    check_names(&params.tasks, workspaces.iter().map(|workspace| workspace.name.as_str()))?;
    let display = Display::start("orchestrate");
    let mut ended = Vec::with_capacity(params.tasks.len());
    let swarm = client.swarm(params, |event| match event {
        Event::Progress { step, fraction } => display.update(&step, fraction),
        Event::TaskDone(task) => ended.push(*task),
        Event::Started { .. } | Event::Output { .. } | Event::Flow(_) | Event::FlowsLost { .. } => {}
    });
    swarm.await?;
    display.done("all tasks ended");
    Ok(ended)
}

fn worker(task: &str) -> String {
    format!("{PREFIX}-{task}")
}

/// Refuses to begin if another workspace has the name of a worker: workers have fixed names. This is checked before any
/// AI agent starts, because AI agents cost money. If a name is taken after this check, the task of that worker fails
/// with the reason.
fn check_names<'a>(tasks: &[SwarmTaskParams], taken: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    let taken: HashSet<&str> = taken.collect();
    let wanted = tasks.iter().map(|task| worker(&task.name));
    let occupied: Vec<String> = wanted.filter(|name| taken.contains(name.as_str())).collect();
    let Some(first) = occupied.first() else { return Ok(()) };
    let names = occupied.join(", ");
    Err(Failure::new(format!("workspaces with the names of workers exist already: {names}")).hint(format!(
        "wait for the run that they belong to, destroy leftover workers (`agentiso rm {first}`), or rename the tasks"
    )))
}

fn print_results(ended: &[SwarmTaskResult], kept: &Path) -> Result<ExitCode, Failure> {
    let rows = ended.iter().map(|task| {
        let words = if task.success { String::new() } else { last_line(task) };
        let result = if task.success { "ok" } else { "failed" };
        [task.name.clone(), result.to_owned(), task.exit_code.to_string(), words]
    });
    output::line(&output::table(["TASK", "RESULT", "EXIT", ""], rows.collect()))?;
    output::line(&format!("results in {}", kept.display()))?;
    let failed = ended.iter().any(|task| !task.success);
    Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// The last line of a task's standard error.
fn last_line(task: &SwarmTaskResult) -> String {
    let text = results::stderr_text(task);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    output::one_line(&line.chars().take(120).collect::<String>())
}

fn plan(tasks: &TaskFile, arguments: &Arguments, has_key: bool) -> String {
    let mut lines = vec![
        format!(
            "fork {} at {}, {} tasks at a time",
            tasks.golden_workspace, tasks.snapshot_name, arguments.max_parallel
        ),
        format!("API key from {} ({})", arguments.api_key_env, if has_key { "set" } else { "not set" }),
    ];
    if tasks.mcp_bridge {
        lines.push("every worker has MCP access to its own workspace".to_owned());
    }
    lines.push("workers (their names must be unused when the run starts):".to_owned());
    for task in &tasks.tasks {
        let first = task.prompt.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let shown: String = output::one_line(first).chars().take(72).collect();
        let worker = worker(task.name.as_str());
        lines.push(format!("{worker}  in {}: {shown}", task.shown_workdir()));
        let queries = task.vault_context.iter();
        lines.extend(queries.map(|query| format!("    notes: {}", output::one_line(&query.to_string()))));
    }
    lines.push("dry run: nothing was run".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn orchestrate_defaults_match_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tasks.toml");
        std::fs::write(&file, "golden_workspace = \"g\"\n[[tasks]]\nname = \"a\"\nprompt = \"x\"\n").unwrap();
        let CommandLine { arguments } =
            CommandLine::parse_from(["orchestrate", "--task-file", file.to_str().unwrap()]);
        let tasks = TaskFile::read(&arguments.task_file).unwrap();
        let asked = params(&tasks, BTreeMap::new(), arguments.max_parallel);
        assert_eq!((asked.max_parallel, asked.timeout_secs, asked.mcp_bridge), (10, 300, false));
        assert_eq!((asked.snapshot.as_str(), asked.name_prefix.as_deref()), ("golden", Some("orch")));
        assert_eq!((asked.tasks[0].workdir.as_ref(), arguments.dry_run), (None, false));
        let shown = plan(&tasks, &arguments, false);
        for part in [
            "g at golden, 10 tasks at a time",
            "API key from ANTHROPIC_API_KEY (not set)",
            "orch-a  in /workspace",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn taken_worker_names_are_refused() {
        let task = |name: &str| SwarmTaskParams { name: name.to_owned(), ..SwarmTaskParams::default() };
        let tasks = [task("a"), task("b"), task("c")];
        assert!(check_names(&tasks, ["a", "orch-", "orch-d", "gold"].into_iter()).is_ok());
        let told = check_names(&tasks, ["gold", "orch-c", "orch-b"].into_iter()).unwrap_err().to_string();
        assert!(told.contains("orch-b, orch-c") && !told.contains("orch-a"), "{told}");
    }
}
