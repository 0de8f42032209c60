//! `agentiso snapshot rm`: removes snapshots of a workspace.

use std::process::ExitCode;

use agentiso_core::names::SnapshotName;

use super::parse_name;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Remove snapshots of a workspace and free the space that only they use
///
/// A snapshot cannot be removed while forks of it exist. Later snapshots are kept.
#[derive(clap::Args, Debug)]
#[command(
    visible_alias = "remove",
    after_help = "\
Examples:
  agentiso snapshot rm dev clean
  agentiso snapshot rm dev one two"
)]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    #[arg(required = true, value_name = "NAME", value_parser = parse_name)]
    names: Vec<SnapshotName>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    runtime::block_on(async {
        let mut client = Client::open(context).await?;
        let mut removed = Vec::new();
        for name in &arguments.names {
            let snapshot = client.delete_snapshot(&arguments.workspace, name).await?;
            if !arguments.json {
                output::line(&format!("snapshot {} removed", snapshot.name))?;
            }
            removed.push(snapshot);
        }
        if arguments.json {
            output::json(&removed)?;
        }
        Ok(ExitCode::SUCCESS)
    })?
}
