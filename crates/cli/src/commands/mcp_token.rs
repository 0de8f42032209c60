//! `agentiso mcp-token`: grants or revokes a workspace's access to MCP.

use std::process::ExitCode;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Give an AI agent inside a workspace MCP access to that workspace
///
/// Prints the MCP address that is reachable from the workspace, and a new token for it. The token works only in this
/// workspace, until it is replaced by a new one, revoked, or the workspace is destroyed. Needs mcp_bridge.enabled = true in
/// the configuration.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso mcp-token dev
  agentiso mcp-token dev --json | jq -r .token
  agentiso mcp-token dev --revoke")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Revoke the token and close the connections that use it
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
            return output::line(&format!("the token of {workspace} is revoked"));
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
