//! `agentiso snapshot create`: takes a snapshot of a running workspace.

use std::process::ExitCode;

use agentiso_core::names::SnapshotName;
use serde_json::json;

use super::parse_name;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::{output, runtime};

/// Take a snapshot of a running workspace
///
/// It contains everything that the workspace has written. The workspace is paused for a few milliseconds.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso snapshot create dev clean
  agentiso snapshot create dev server-up --memory")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Name of the snapshot: letters, digits, '.', '_' or '-'
    #[arg(value_parser = parse_name)]
    name: SnapshotName,
    /// Include memory and running processes
    #[arg(long, short)]
    memory: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workspace, name, memory, json } = arguments;
    let mut display = if *json { Display::silent() } else { Display::start(&format!("snapshot {name}")) };
    let made = runtime::block_on(async {
        Client::open(context).await?.snapshot(workspace, name, *memory, &display).await
    })??;
    display.clear();
    let pause_ms = made.pause_us as f64 / 1000.0;
    if *json {
        output::json(&json!({
            "snapshot_id": made.snapshot.id,
            "name": made.snapshot.name,
            "workspace_id": made.workspace.id,
            "has_memory": made.snapshot.has_memory,
            "created_at": made.snapshot.created_at,
            "pause_ms": pause_ms,
        }))?;
    } else {
        let what = if made.snapshot.has_memory { "disk and memory" } else { "the disk" };
        output::line(&format!(
            "snapshot {} of {} contains {what}; the workspace was paused for {pause_ms:.1} ms",
            made.snapshot.name, made.workspace.name
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
