//! `agentiso net forward`: forwards a port of the host to a workspace.

use std::process::ExitCode;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Forward a host port to a workspace
///
/// It lasts until it is removed or the workspace is destroyed. The server inside must listen on 0.0.0.0 or on the
/// workspace's address.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso net forward dev 8080          a free port is chosen
  agentiso net forward dev 8080 18080")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// TCP port inside the workspace
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    guest_port: u16,
    /// Port of 127.0.0.1, from 1024 on [default: a free one]
    #[arg(value_parser = clap::value_parser!(u16).range(1024..))]
    host_port: Option<u16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workspace, guest_port, host_port, json } = arguments;
    let added = runtime::block_on(async {
        Client::open(context).await?.forward(workspace, *guest_port, *host_port).await
    })??;
    match json {
        true => output::json(&added)?,
        false => output::line(&format!(
            "127.0.0.1:{} is forwarded to port {} of {workspace}",
            added.host_port, added.guest_port
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}
