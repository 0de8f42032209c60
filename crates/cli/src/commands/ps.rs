//! `agentiso ps`: lists workspaces.

use std::process::ExitCode;

use agentiso_core::lifecycle::PublicState;
use agentiso_daemon::control::wire::Workspace;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::client::Client;
use crate::commands::status::state_word;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// List workspaces
#[derive(clap::Args, Debug)]
#[command(
    visible_alias = "ls",
    after_help = "\
Examples:
  agentiso ps
  agentiso ps --running
  agentiso ps --json | jq -r '.[] | select(.state == \"running\") | .name'"
)]
pub(crate) struct Arguments {
    /// Show only running workspaces
    #[arg(long)]
    running: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut workspaces = runtime::block_on(async { Client::open(context).await?.workspaces().await })??;
    if arguments.running {
        workspaces.retain(|workspace| workspace.state == PublicState::Running);
    }
    if arguments.json {
        let values: Vec<_> = workspaces.iter().map(value).collect();
        output::json(&values)?;
        return Ok(ExitCode::SUCCESS);
    }
    if workspaces.is_empty() {
        output::line("no workspaces; create one with `agentiso create`")?;
        return Ok(ExitCode::SUCCESS);
    }
    let now = Timestamp::now();
    let rows = workspaces
        .iter()
        .map(|workspace| {
            [
                workspace.name.clone(),
                state_word(workspace.state).to_owned(),
                workspace.ip.to_string(),
                workspace.base_image.clone(),
                workspace.resources.vcpus.to_string(),
                format!("{} MB", workspace.resources.memory_mb),
                format!("{} GB", workspace.resources.disk_gb),
                output::age(workspace.created_at, now),
            ]
        })
        .collect();
    output::line(&output::table(
        ["NAME", "STATE", "IP", "IMAGE", "VCPUS", "MEMORY", "DISK", "CREATED"],
        rows,
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The JSON of a workspace. Its keys are those of the MCP tools, so that scripts can use either.
fn value(workspace: &Workspace) -> Value {
    json!({
        "workspace_id": workspace.id,
        "name": workspace.name,
        "state": workspace.state,
        "phase": workspace.phase,
        "ip": workspace.ip,
        "base_image": workspace.base_image,
        "resources": workspace.resources,
        "owner": workspace.owner,
        "pid": workspace.pid,
        "rung": workspace.rung,
        "stop_reason": workspace.stop_reason,
        "snapshots": workspace.snapshots.len(),
        "forked_from": workspace.forked_from,
        "created_at": workspace.created_at,
    })
}
