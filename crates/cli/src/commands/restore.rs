//! `agentiso restore`: brings a workspace back to a snapshot.

use std::process::ExitCode;

use agentiso_core::names::SnapshotName;
use agentiso_daemon::Rung;
use agentiso_daemon::control::wire::RestoreResult;
use serde_json::json;

use super::snapshot::parse_name;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::{output, runtime};

/// Restore a workspace to a snapshot
///
/// Changes since then are lost, unless another snapshot holds them; no snapshot is removed. The workspace is running
/// afterwards, even if it was stopped before. If the snapshot has memory, its processes continue where they were.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso restore dev clean")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    #[arg(value_parser = parse_name)]
    snapshot: SnapshotName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workspace, snapshot, json } = arguments;
    let mut display =
        if *json { Display::silent() } else { Display::start(&format!("workspace {workspace}")) };
    let restored = runtime::block_on(async {
        Client::open(context).await?.restore(workspace, snapshot, &display).await
    })??;
    display.clear();
    if *json {
        output::json(&json!({
            "workspace_id": restored.workspace.id,
            "name": restored.workspace.name,
            "state": restored.workspace.state,
            "ip": restored.workspace.ip,
            "snapshot_name": restored.snapshot.name,
            "processes_restored": restored.rung == Rung::Memory,
            "rung": restored.rung,
            "warning": restored.warning,
        }))?;
    } else {
        output::line(&sentence(&restored))?;
        if let Some(warning) = &restored.warning {
            eprintln!("warning: {warning}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn sentence(restored: &RestoreResult) -> String {
    let processes = match (restored.rung == Rung::Memory, restored.snapshot.has_memory) {
        (true, _) => "its processes continue from there",
        (false, false) => "freshly booted because the snapshot has no memory",
        (false, true) => "freshly booted: its processes could not be restored",
    };
    format!("{} is restored to {} and running, {processes}", restored.workspace.name, restored.snapshot.name)
}
