//! `agentiso fork`: makes new workspaces from a snapshot.

use std::process::ExitCode;

use agentiso_core::names::{NamePrefix, SnapshotName, WorkspaceName};
use agentiso_daemon::control::wire::{ForkManyParams, ForkManyResult, ForkParams, ForkResult};
use serde_json::{Value, json};

use super::create::rung_words;
use super::snapshot::parse_name;
use crate::client::Client;
use crate::context::Context;
use crate::failure::{FAILED, Failure};
use crate::progress::Display;
use crate::{output, runtime};

/// The most forks of one command; the MCP tools have the same limit.
const MAX_FORKS: i64 = 20;

const DEFAULT_PREFIX: &str = "worker";

/// Create workspaces from a snapshot of another one
///
/// Each is an independent workspace that starts with the snapshot's disk and, if the snapshot has memory, with its running
/// processes. The source workspace is not changed and may be stopped.
///
/// With --count, as many forks as possible are created; the exit code is 1 if any failed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso fork dev clean
  agentiso fork dev clean try
  agentiso fork dev clean --count 5 --prefix idea --setup 'cd /workspace && git checkout -b $(hostname)'")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// The snapshot to fork
    #[arg(value_parser = parse_name)]
    snapshot: SnapshotName,
    /// Name of the new workspace [default: fork- and eight digits]
    #[arg(value_parser = |text: &str| WorkspaceName::parse(text).map_err(|error| error.to_string()))]
    name: Option<WorkspaceName>,
    /// Number of forks, up to 20
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "name", value_parser = clap::value_parser!(u32).range(1..=MAX_FORKS))]
    count: Option<u32>,
    /// Name the forks PREFIX-1, PREFIX-2 and so on [default: worker]
    #[arg(long, requires = "count", value_parser = |text: &str| NamePrefix::parse(text).map_err(|error| error.to_string()))]
    prefix: Option<NamePrefix>,
    /// Run this shell command in each fork; a fork fails if it fails; may be repeated
    #[arg(long, value_name = "COMMAND")]
    setup: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    let title = format!("fork of {}", arguments.workspace);
    let display = if arguments.json { Display::silent() } else { Display::start(&title) };
    match arguments.count {
        None => one(context, arguments, display),
        Some(count) => many(context, arguments, count, display),
    }
}

fn one(context: &Context, arguments: Arguments, mut display: Display) -> Result<ExitCode, Failure> {
    let Arguments { workspace, snapshot, name, setup, json, .. } = arguments;
    let params = ForkParams {
        workspace,
        snapshot: snapshot.into(),
        name: name.map(Into::into),
        setup_commands: setup,
    };
    let forked = runtime::block_on(async { Client::open(context).await?.fork(params, &display).await })??;
    display.clear();
    if json {
        output::json(&value(&forked))?;
    } else {
        let fork = &forked.workspace;
        let way = fork.rung.map(|rung| format!(" ({})", rung_words(rung))).unwrap_or_default();
        output::line(&format!(
            "{} is running at {}, in {} ms{way}",
            fork.name, fork.ip, forked.boot_time_ms
        ))?;
        if let Some(warning) = &forked.warning {
            eprintln!("warning: {warning}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn value(forked: &ForkResult) -> Value {
    json!({
        "workspace_id": forked.workspace.id,
        "name": forked.workspace.name,
        "state": forked.workspace.state,
        "ip": forked.workspace.ip,
        "boot_time_ms": forked.boot_time_ms,
        "rung": forked.workspace.rung,
        "forked_from": forked.workspace.forked_from,
        "warning": forked.warning,
    })
}

fn many(
    context: &Context,
    arguments: Arguments,
    count: u32,
    mut display: Display,
) -> Result<ExitCode, Failure> {
    let Arguments { workspace, snapshot, prefix, setup, json, .. } = arguments;
    let params = ForkManyParams {
        workspace,
        snapshot: snapshot.into(),
        count,
        name_prefix: prefix.map_or_else(|| DEFAULT_PREFIX.to_owned(), Into::into),
        setup_commands: setup,
    };
    let forked =
        runtime::block_on(async { Client::open(context).await?.fork_many(params, &display).await })??;
    display.clear();
    if json {
        output::json(&values(count, &forked))?;
    } else {
        for fork in &forked.workers {
            output::line(&format!("{} is running at {}", fork.name, fork.ip))?;
        }
        for warning in &forked.warnings {
            eprintln!("warning: {}", output::printable(warning));
        }
        for failed in &forked.failures {
            eprintln!("{} failed: {}", failed.name, failed.error);
        }
    }
    Ok(if forked.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn values(count: u32, forked: &ForkManyResult) -> Value {
    let workers: Vec<Value> = forked
        .workers
        .iter()
        .map(|fork| json!({ "workspace_id": fork.id, "name": fork.name, "ip": fork.ip }))
        .collect();
    json!({
        "requested_count": count,
        "success_count": workers.len(),
        "failure_count": forked.failures.len(),
        "workers": workers,
        "failures": forked.failures,
        "warnings": forked.warnings,
    })
}
