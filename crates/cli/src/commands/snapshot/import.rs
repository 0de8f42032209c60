//! `agentiso snapshot import`.

use std::path::PathBuf;
use std::process::ExitCode;

use agentiso_core::names::WorkspaceName;
use agentiso_daemon::Rung;
use agentiso_daemon::control::wire::{ImportParams, ImportResult};
use serde_json::json;

use super::path::absolute;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::{output, runtime};

/// Make a workspace from a file that `agentiso snapshot export` wrote
///
/// It runs as the snapshot was, and has that snapshot. Its processes go on if their memory is in the file and was
/// taken on a host of the same kind: the same QEMU, kernel and processor. Otherwise it boots from its disk, and what
/// differs is said.
///
/// A file that was cut off or changed is refused. That says nothing of who made it: take memory only from people you
/// trust.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso snapshot import dev-ready.agentiso
  agentiso snapshot import dev-ready.agentiso copy
  agentiso snapshot import untrusted.agentiso --disk-only")]
pub(crate) struct Arguments {
    file: PathBuf,
    /// The workspace's name [default: the name in the file]
    #[arg(value_parser = |text: &str| WorkspaceName::parse(text).map_err(|error| error.to_string()))]
    name: Option<WorkspaceName>,
    /// Leave the memory out; the workspace boots from its disk
    #[arg(long)]
    disk_only: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { file, name, disk_only, json } = arguments;
    let params = ImportParams {
        file: absolute(file)?,
        name: name.as_ref().map(ToString::to_string),
        disk_only: *disk_only,
    };
    let mut display = if *json { Display::silent() } else { Display::start(&file.display().to_string()) };
    let imported =
        runtime::block_on(async { Client::open(context).await?.import_snapshot(params, &display).await })??;
    display.clear();
    if *json {
        output::json(&json!({
            "workspace_id": imported.workspace.id,
            "name": imported.workspace.name,
            "state": imported.workspace.state,
            "ip": imported.workspace.ip,
            "snapshot_id": imported.snapshot.id,
            "snapshot_name": imported.snapshot.name,
            "has_memory": imported.snapshot.has_memory,
            "processes_restored": imported.workspace.rung == Some(Rung::Memory),
            "rung": imported.workspace.rung,
            "boot_time_ms": imported.boot_time_ms,
            "warning": imported.warning,
        }))?;
    } else {
        output::line(&sentence(&imported))?;
        if let Some(warning) = &imported.warning {
            eprintln!("warning: {}", output::printable(warning));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn sentence(imported: &ImportResult) -> String {
    let processes = match imported.workspace.rung {
        Some(Rung::Memory) => "its processes go on from there",
        Some(Rung::Pool | Rung::ImageTemplate | Rung::BareTemplate | Rung::ColdBoot) | None => {
            "without the processes it had"
        }
    };
    let (workspace, snapshot) = (&imported.workspace, &imported.snapshot.name);
    format!("{} is running at {} as it was in {snapshot}, {processes}", workspace.name, workspace.ip)
}
