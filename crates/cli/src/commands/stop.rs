//! `agentiso stop`: stops workspaces.

use std::process::ExitCode;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Stop workspaces, keeping their disks
///
/// The guest is asked to power off; if it does not in time, the VM is killed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso stop dev
  agentiso stop dev test")]
pub(crate) struct Arguments {
    /// Names, ids, or beginnings of ids
    #[arg(required = true, value_name = "WORKSPACE")]
    workspaces: Vec<String>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        let mut client = Client::open(context).await?;
        for wanted in &arguments.workspaces {
            let workspace = client.stop(wanted).await?;
            output::line(&format!("{} stopped", workspace.name))?;
        }
        Ok(ExitCode::SUCCESS)
    })?
}
