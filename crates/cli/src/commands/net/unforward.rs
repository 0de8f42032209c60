//! `agentiso net unforward`: removes a forward.

use std::process::ExitCode;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Remove a port forward and close its connections
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso net unforward dev 8080")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// TCP port inside the workspace
    guest_port: u16,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workspace, guest_port } = arguments;
    runtime::block_on(async { Client::open(context).await?.end_forward(workspace, *guest_port).await })??;
    output::line(&format!("port {guest_port} of {workspace} is no longer forwarded"))?;
    Ok(ExitCode::SUCCESS)
}
