//! `agentiso orchestrate`: a batch of prompts, each for an agent in a fork of its own.
//!
//! ```text
//!  task file ─▶ checked ─▶ one swarm of the daemon: fork ─▶ agent ─▶ destroy ─▶ results on disk
//! ```
//!
//! The daemon does the work and tidies up whatever becomes of this command.

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

use crate::client::{self, Client};
use crate::context::Context;
use crate::failure::{FAILED, Failure};
use crate::progress::Display;
use crate::{output, runtime};
use results::Results;
use task_file::TaskFile;

/// For each task, from the contract with task files.
const TIMEOUT_SECS: u64 = 300;

/// What the names of workers begin with, from the contract with task files.
const PREFIX: &str = "orch";

/// The variable in which agents look for a key.
const KEY: &str = "ANTHROPIC_API_KEY";

/// Run prompts with agents, each in a fork of a snapshot
///
/// The task file names a workspace and a snapshot to fork, and up to 20 tasks with a prompt each. In every fork the agent of
/// the image is run with the prompt: claude if it is there, else opencode. It has 300 seconds. The workers are destroyed when
/// all tasks have ended, also when this command is interrupted. What the agents said is in orchestrate-results, in a directory
/// for each run that came to its end. A second run for the same state directory is refused while one is under way.
///
/// The key goes from the variable to the agents' environment; it is in no command line, log or file. docs/orchestrate.md
/// describes the task file.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso orchestrate --task-file tasks.toml --dry-run
  agentiso orchestrate --task-file tasks.toml
  agentiso orchestrate --task-file tasks.toml --api-key-env TEAM_KEY --max-parallel 4")]
pub(crate) struct Arguments {
    /// The prompts and what they are run in, as TOML
    #[arg(long, value_name = "FILE")]
    task_file: PathBuf,
    /// The variable of this shell that holds the key for the agents
    #[arg(long, value_name = "VAR", default_value = KEY)]
    api_key_env: String,
    /// Tasks at once
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=20))]
    max_parallel: u64,
    /// Show what would be run, and run nothing
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
        let sentence =
            format!("the variable {} with the key for the agents is not set", arguments.api_key_env);
        return Err(Failure::usage(sentence).hint("set it, or name another one with --api-key-env"));
    };
    let environment = BTreeMap::from([(KEY.to_owned(), key)]);
    let variables = environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    env::check(variables).map_err(|error| Failure::usage(error.to_string()))?;
    let _alone = alone(&context.config.paths)?;
    // Before anything is run whose results could then not be kept.
    let results = Results::prepare(Path::new("."))?;
    let params = params(&tasks, environment, arguments.max_parallel);
    let ended = runtime::block_on(swarm(context, params))??;
    let kept = results.write(&tasks, &ended)?;
    tell(&ended, &kept)
}

/// One run at a time for a state directory: each may use as many machines as a session may have, and whoever starts a second
/// one by mistake would pay its agents twice.
fn alone(paths: &Paths) -> Result<InstanceLock, Failure> {
    let unmade = |error| Failure::new(format!("{} cannot be made: {error}", paths.data.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&paths.data).map_err(unmade)?;
    InstanceLock::acquire(&paths.orchestrate_lock(), "agentiso orchestrate").map_err(|error| {
        let hint = match &error {
            LockError::Held { .. } => "wait until it ends, or end it; its workers go with it",
            LockError::Io { .. } => "make the state directory writable for you",
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

/// What became of every task. Dropping the future makes the daemon end them and destroy their workers.
async fn swarm(context: &Context, mut params: SwarmParams) -> Result<Vec<SwarmTaskResult>, Failure> {
    let mut client = Client::open(context).await?;
    params.golden = client.resolve(&params.golden).await?;
    let workspaces = client.workspaces().await?;
    check_names(&params.tasks, workspaces.iter().map(|workspace| workspace.name.as_str()))?;
    let display = Display::start("orchestrate");
    let mut ended = Vec::with_capacity(params.tasks.len());
    let swarm = client.control().swarm(params, |event| match event {
        Event::Progress { step, fraction } => display.update(&step, fraction),
        Event::TaskDone(task) => ended.push(*task),
        Event::Started { .. } | Event::Output { .. } | Event::Flow(_) | Event::FlowsLost { .. } => {}
    });
    swarm.await.map_err(client::refused)?;
    display.done("all tasks ended");
    Ok(ended)
}

fn worker(task: &str) -> String {
    format!("{PREFIX}-{task}")
}

/// Workers have fixed names, so whatever has one of them already is in the way, and no agent should begin and be paid
/// before that is known. Who takes a name in the moment after fails one task, which says so.
fn check_names<'a>(tasks: &[SwarmTaskParams], taken: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    let taken: HashSet<&str> = taken.collect();
    let wanted = tasks.iter().map(|task| worker(&task.name));
    let occupied: Vec<String> = wanted.filter(|name| taken.contains(name.as_str())).collect();
    let Some(first) = occupied.first() else { return Ok(()) };
    let names = occupied.join(", ");
    Err(Failure::new(format!("workers need names that other workspaces have: {names}")).hint(format!(
        "wait for the run that they belong to, or destroy what is left over (agentiso rm {first}), or give the tasks \
         other names"
    )))
}

fn tell(ended: &[SwarmTaskResult], kept: &Path) -> Result<ExitCode, Failure> {
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

/// The last thing that a task complained about.
fn last_line(task: &SwarmTaskResult) -> String {
    let text = results::complaint(task);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    output::one_line(&line.chars().take(120).collect::<String>())
}

fn plan(tasks: &TaskFile, arguments: &Arguments, has_key: bool) -> String {
    let mut lines = vec![
        format!(
            "fork {} at {}, {} at once",
            tasks.golden_workspace, tasks.snapshot_name, arguments.max_parallel
        ),
        format!("key from {} ({})", arguments.api_key_env, if has_key { "set" } else { "not set" }),
    ];
    if tasks.mcp_bridge {
        lines.push("every worker may use MCP on itself".to_owned());
    }
    lines.push("workers, whose names must be free when it begins:".to_owned());
    for task in &tasks.tasks {
        let first = task.prompt.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let shown: String = output::one_line(first).chars().take(72).collect();
        let worker = worker(task.name.as_str());
        lines.push(format!("{worker}  in {}: {shown}", task.shown_workdir()));
        let queries = task.vault_context.iter();
        lines.extend(queries.map(|query| format!("    notes: {}", output::one_line(&query.to_string()))));
    }
    lines.push("nothing was run".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn what_the_command_and_the_file_leave_out_is_as_the_contract_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tasks.toml");
        std::fs::write(&file, "golden_workspace = \"g\"\n[[tasks]]\nname = \"a\"\nprompt = \"x\"\n").unwrap();
        let Line { arguments } = Line::parse_from(["orchestrate", "--task-file", file.to_str().unwrap()]);
        let tasks = TaskFile::read(&arguments.task_file).unwrap();
        let asked = params(&tasks, BTreeMap::new(), arguments.max_parallel);
        assert_eq!((asked.max_parallel, asked.timeout_secs, asked.mcp_bridge), (10, 300, false));
        assert_eq!((asked.snapshot.as_str(), asked.name_prefix.as_deref()), ("golden", Some("orch")));
        assert_eq!((asked.tasks[0].workdir.as_ref(), arguments.dry_run), (None, false));
        let shown = plan(&tasks, &arguments, false);
        for part in
            ["g at golden, 10 at once", "key from ANTHROPIC_API_KEY (not set)", "orch-a  in /workspace"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn a_workspace_that_has_the_name_of_a_worker_is_named_before_anything_is_run() {
        let task = |name: &str| SwarmTaskParams { name: name.to_owned(), ..SwarmTaskParams::default() };
        let tasks = [task("a"), task("b"), task("c")];
        assert!(check_names(&tasks, ["a", "orch-", "orch-d", "gold"].into_iter()).is_ok());
        let told = check_names(&tasks, ["gold", "orch-c", "orch-b"].into_iter()).unwrap_err().to_string();
        assert!(told.contains("orch-b, orch-c") && !told.contains("orch-a"), "{told}");
    }
}
