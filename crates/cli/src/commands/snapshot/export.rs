//! `agentiso snapshot export`: writes a snapshot to one file.

use std::path::PathBuf;
use std::process::ExitCode;

use agentiso_core::names::SnapshotName;
use agentiso_daemon::control::wire::ExportParams;

use super::parse_name;
use super::path::absolute;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::{output, runtime};

/// Export a snapshot to a single file, as a backup or for another host
///
/// The file is self-contained: it has the whole disk and, if the snapshot has it, the memory, including any keys and
/// passwords in them. Only you can read it. The workspace may be running.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso snapshot export dev ready dev-ready.agentiso
  agentiso snapshot export dev ready /backup/dev.agentiso --force")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    #[arg(value_parser = parse_name)]
    snapshot: SnapshotName,
    /// File to write
    file: PathBuf,
    /// Replace an existing file
    #[arg(long, short)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workspace, snapshot, file, force, json } = arguments;
    let params = ExportParams {
        workspace: workspace.clone(),
        snapshot: snapshot.to_string(),
        file: absolute(file)?,
        replace: *force,
    };
    let mut display = if *json { Display::silent() } else { Display::start(&format!("snapshot {snapshot}")) };
    let exported =
        runtime::block_on(async { Client::open(context).await?.export_snapshot(params, &display).await })??;
    display.clear();
    if *json {
        output::json(&exported)?;
    } else {
        let what = if exported.has_memory { "disk and memory" } else { "the disk" };
        let (bytes, content) = (output::size(exported.file_bytes), output::size(exported.content_bytes));
        output::line(&format!("{} ({bytes}) contains {what} ({content})", exported.file))?;
    }
    Ok(ExitCode::SUCCESS)
}
