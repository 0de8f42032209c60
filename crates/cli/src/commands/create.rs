//! `agentiso create`: creates a workspace and starts it.

use std::process::ExitCode;

use agentiso_core::names::{ImageName, WorkspaceName};
use agentiso_core::network::PolicyChange;
use agentiso_daemon::Rung;
use agentiso_daemon::control::wire::CreateParams;
use serde_json::json;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::{output, runtime};

/// Create a workspace and start it
///
/// Returns when it is ready to run commands.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso create dev
  agentiso create big --vcpus 4 --memory 4096 --disk 40
  agentiso create box --image alpine
  id=$(agentiso create --json | jq -r .workspace_id)")]
pub(crate) struct Arguments {
    /// Name: 1 to 128 letters, digits, '.', '_' or '-' [default: ws- and eight digits]
    #[arg(value_parser = |text: &str| WorkspaceName::parse(text).map_err(|error| error.to_string()))]
    name: Option<WorkspaceName>,
    /// Base image [default: storage.base_image]
    #[arg(long, value_parser = |text: &str| ImageName::parse(text).map_err(|error| error.to_string()))]
    image: Option<ImageName>,
    /// Virtual CPUs [default: resources.default_vcpus]
    #[arg(long, value_name = "N")]
    vcpus: Option<u32>,
    /// Memory in MB [default: resources.default_memory_mb]
    #[arg(long, value_name = "MB")]
    memory: Option<u32>,
    /// Disk in GB [default: resources.default_disk_gb]
    #[arg(long, value_name = "GB")]
    disk: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { name, image, vcpus, memory, disk, json } = arguments;
    let title = name.as_ref().map_or_else(|| "workspace".to_owned(), |name| format!("workspace {name}"));
    let mut display = if json { Display::silent() } else { Display::start(&title) };
    let params = CreateParams {
        name: name.map(Into::into),
        base_image: image.map(Into::into),
        vcpus,
        memory_mb: memory,
        disk_gb: disk,
        network: PolicyChange::default(),
    };
    let created = runtime::block_on(async { Client::open(context).await?.create(params, &display).await })??;
    let workspace = &created.workspace;
    if json {
        output::json(&json!({
            "workspace_id": workspace.id,
            "name": workspace.name,
            "state": workspace.state,
            "ip": workspace.ip,
            "boot_time_ms": created.boot_time_ms,
            "from_pool": created.from_pool,
            "rung": workspace.rung,
            "resources": workspace.resources,
            "warnings": workspace.network_trouble.sentences(),
        }))?;
    } else {
        display.clear();
        let way = workspace.rung.map(|rung| format!(" ({})", rung_words(rung))).unwrap_or_default();
        output::line(&format!(
            "{} is running at {}, in {} ms{way}",
            workspace.name, workspace.ip, created.boot_time_ms
        ))?;
        super::net::warn(workspace);
    }
    Ok(ExitCode::SUCCESS)
}

/// The way in which the VM was started, in words.
pub(super) fn rung_words(rung: Rung) -> &'static str {
    match rung {
        Rung::Pool => "from the warm pool",
        Rung::Memory => "with the snapshot's memory",
        Rung::ImageTemplate => "restored from the image's template",
        Rung::BareTemplate => "restored from a bare template",
        Rung::ColdBoot => "booted",
    }
}
