//! `agentiso tree`: draws the origin of every workspace and snapshot as a tree.

mod draw;

use std::process::ExitCode;

use agentiso_daemon::control::wire::Workspace;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::client::{Client, resolve_in};
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Show workspaces, snapshots and forks as a tree
///
/// Workspaces are marked with a dot (filled if running), snapshots with an @. A snapshot directly below another was taken
/// after it; the tree branches at forks and where several snapshots have the same parent. The size of a workspace is the
/// space of its disk and snapshots; the size of a snapshot is the space that removing it would free.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso tree
  agentiso tree dev
  agentiso tree --json | jq -r '.[] | select(.forked_from.snapshot_name == \"clean\") | .name'")]
pub(crate) struct Arguments {
    /// Only this workspace and its descendants: name, id, or the beginning of an id
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
        output::line("no workspaces; create one with `agentiso create`")?;
    } else {
        output::line(&tree.draw(Timestamp::now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn find<'a>(workspaces: &'a [Workspace], wanted: &str) -> Result<&'a Workspace, Failure> {
    let resolved = resolve_in(workspaces, wanted)?;
    let known = |workspace: &&Workspace| workspace.name == resolved || workspace.id.to_string() == resolved;
    workspaces.iter().find(known).ok_or_else(|| {
        Failure::new(format!("there is no workspace {wanted:?}")).hint("`agentiso ps` lists all workspaces")
    })
}

/// The JSON of a workspace. The list is flat, with `parent` and `forked_from` as edges, because a long line of
/// snapshots would nest deeper than JSON parsers allow.
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
