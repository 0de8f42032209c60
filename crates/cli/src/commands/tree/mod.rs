//! `agentiso tree`: where every workspace and snapshot came from.

mod draw;

use std::process::ExitCode;

use agentiso_daemon::control::wire::Workspace;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::client::{Client, resolve_in};
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Draw workspaces, their snapshots and forks as a tree
///
/// Workspaces have a dot (full if they run), snapshots an @. A snapshot straight below another was taken after it;
/// where several descend from one, and for forks, the tree branches. The size of a workspace is all that its disk
/// and snapshots take; that of a snapshot is what removing it would give back.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso tree
  agentiso tree dev
  agentiso tree --json | jq -r '.[] | select(.forked_from.snapshot_name == \"clean\") | .name'")]
pub(crate) struct Arguments {
    /// Only this workspace and what descends from it: name, id, or the beginning of an id
    workspace: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let workspaces = runtime::block_on(async { Client::open(context).await?.measured_workspaces().await })??;
    let tree = match &arguments.workspace {
        None => draw::Tree::whole(&workspaces),
        Some(wanted) => draw::Tree::below(&workspaces, find(&workspaces, wanted)?),
    };
    if arguments.json {
        let values: Vec<Value> = tree.workspaces().into_iter().map(value).collect();
        output::json(&values)?;
    } else if workspaces.is_empty() {
        output::line("no workspaces; `agentiso create` makes one")?;
    } else {
        output::line(&tree.draw(Timestamp::now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn find<'a>(workspaces: &'a [Workspace], wanted: &str) -> Result<&'a Workspace, Failure> {
    let resolved = resolve_in(workspaces, wanted)?;
    let known = |workspace: &&Workspace| workspace.name == resolved || workspace.id.to_string() == resolved;
    workspaces.iter().find(known).ok_or_else(|| {
        Failure::new(format!("no workspace {wanted:?} exists")).hint("`agentiso ps` shows all workspaces")
    })
}

/// Flat, with `parent` and `forked_from` for the edges: a long line of snapshots must not nest deeper than readers
/// of JSON allow.
fn value(workspace: &Workspace) -> Value {
    json!({
        "workspace_id": workspace.id,
        "name": workspace.name,
        "state": workspace.state,
        "created_at": workspace.created_at,
        "disk_used_bytes": workspace.disk_used_bytes,
        "forked_from": workspace.forked_from,
        "snapshots": workspace.snapshots,
    })
}
