//! `agentiso start`: starts stopped workspaces.

use std::process::ExitCode;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::{output, runtime};

/// Start stopped workspaces
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso start dev
  agentiso start dev test")]
pub(crate) struct Arguments {
    /// Names, ids, or beginnings of ids
    #[arg(required = true, value_name = "WORKSPACE")]
    workspaces: Vec<String>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        let mut client = Client::open(context).await?;
        for wanted in &arguments.workspaces {
            let mut display = Display::start(&format!("workspace {wanted}"));
            let workspace = client.start(wanted, &display).await?;
            display.clear();
            output::line(&format!("{} started", workspace.name))?;
            super::net::warn(&workspace);
        }
        Ok(ExitCode::SUCCESS)
    })?
}
