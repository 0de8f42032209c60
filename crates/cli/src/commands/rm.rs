//! `agentiso rm`: destroys workspaces.

use std::process::ExitCode;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Destroy workspaces, running or not, with their disks and logs
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso rm dev
  agentiso rm dev test
  agentiso rm --all")]
pub(crate) struct Arguments {
    /// Names, ids, or beginnings of ids
    #[arg(required_unless_present = "all", value_name = "WORKSPACE")]
    workspaces: Vec<String>,
    /// All workspaces, including those of MCP clients
    #[arg(long, conflicts_with = "workspaces")]
    all: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        let mut client = Client::open(context).await?;
        let wanted = if arguments.all {
            client.workspaces().await?.into_iter().map(|workspace| workspace.id.to_string()).collect()
        } else {
            arguments.workspaces.clone()
        };
        for wanted in &wanted {
            let workspace = client.destroy(wanted).await?;
            output::line(&format!("{} destroyed", workspace.name))?;
        }
        Ok(ExitCode::SUCCESS)
    })?
}
