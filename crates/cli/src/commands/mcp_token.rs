//! `agentiso mcp-token`.

use std::process::ExitCode;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Let an agent inside a workspace use MCP on its own machine
///
/// Prints the address at which the workspace finds MCP, and a fresh token for it. The token works in this workspace and
/// nowhere else, until it is replaced by the next one, revoked, or the workspace is destroyed. Needs mcp_bridge.enabled =
/// true in the configuration.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso mcp-token dev
  agentiso mcp-token dev --json | jq -r .token
  agentiso mcp-token dev --revoke")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Take the token away, and end what was opened with it
    #[arg(long, conflicts_with = "json")]
    revoke: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workspace, revoke, json } = arguments;
    runtime::block_on(async {
        let mut client = Client::open(context).await?;
        if *revoke {
            client.revoke_bridge(workspace).await?;
            return output::line(&format!("{workspace} has no token any more"));
        }
        let access = client.grant_bridge(workspace).await?;
        if *json {
            return output::json(&access);
        }
        output::line(&access.url)?;
        output::line(&access.token)
    })??;
    Ok(ExitCode::SUCCESS)
}
