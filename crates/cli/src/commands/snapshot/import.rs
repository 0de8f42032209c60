//! `agentiso snapshot import`: makes a workspace from an exported snapshot.

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

/// Create a workspace from a file written by `agentiso snapshot export`
///
/// The workspace starts in the state of the snapshot, and has that snapshot. Its processes continue if the file has their
/// memory and it was taken on a host with the same QEMU, kernel and processor. Otherwise the workspace boots from its disk,
/// and the differences are printed.
///
/// A truncated or modified file is refused. This check does not tell who made the file: import memory only from people you
/// trust.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso snapshot import dev-ready.agentiso
  agentiso snapshot import dev-ready.agentiso copy
  agentiso snapshot import untrusted.agentiso --disk-only")]
pub(crate) struct Arguments {
    file: PathBuf,
    /// Name of the new workspace [default: the name in the file]
    #[arg(value_parser = |text: &str| WorkspaceName::parse(text).map_err(|error| error.to_string()))]
    name: Option<WorkspaceName>,
    /// Ignore the memory; the workspace boots from its disk
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
        Some(Rung::Memory) => "its processes continue from there",
        Some(Rung::Pool | Rung::ImageTemplate | Rung::BareTemplate | Rung::ColdBoot) | None => {
            "freshly booted, without its processes"
        }
    };
    let (workspace, snapshot) = (&imported.workspace, &imported.snapshot.name);
    format!("{} is running at {} as it was in {snapshot}, {processes}", workspace.name, workspace.ip)
}
