//! `agentiso net policy`: shows or changes the policy of a workspace.

use std::process::ExitCode;

use agentiso_core::network::PolicyChange;
use clap::ValueEnum;

use super::ls::policy_summary;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// Show or change the network policy of a workspace
///
/// Options that are not given stay unchanged. A given list replaces the old one; `none` empties it.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso net policy dev                               show the policy
  agentiso net policy dev --internet on
  agentiso net policy dev --allow-domain github.com:443 --allow-domain '*.example.org'
  agentiso net policy dev --allow-cidr 192.168.1.20:5432
  agentiso net policy dev --internet off --allow-domain none")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Access to public addresses; private, host and metadata addresses stay blocked
    #[arg(long, value_name = "on|off")]
    internet: Option<Switch>,
    /// Access to other workspaces that allow it too
    #[arg(long, value_name = "on|off")]
    inter_vm: Option<Switch>,
    /// Allow other workspaces to connect to this TCP port
    #[arg(long, value_name = "PORT")]
    allow_port: Vec<String>,
    /// Allow this domain even without --internet on; ports are optional
    #[arg(long, value_name = "NAME[:PORTS]")]
    allow_domain: Vec<String>,
    /// Block this domain
    #[arg(long, value_name = "NAME[:PORTS]")]
    deny_domain: Vec<String>,
    /// Allow these addresses; the only way to allow private ones
    #[arg(long, value_name = "CIDR[:PORTS]")]
    allow_cidr: Vec<String>,
    /// Block these addresses
    #[arg(long, value_name = "CIDR[:PORTS]")]
    deny_cidr: Vec<String>,
    /// Bandwidth limit in each direction in Mbit/s; 0 removes it
    #[arg(long, value_name = "MBPS")]
    bandwidth: Option<i64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Switch {
    fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

/// No words mean no change; the word `none` means an empty list.
fn list(words: Vec<String>) -> Option<Vec<String>> {
    match words.is_empty() {
        true => None,
        false => Some(words.into_iter().filter(|word| word != "none").collect()),
    }
}

fn ports(words: Vec<String>) -> Result<Option<Vec<i64>>, Failure> {
    let Some(words) = list(words) else { return Ok(None) };
    let parse = |word: String| {
        word.parse()
            .map_err(|_| Failure::new(format!("{word:?} is not a port")).hint("give a port number, or none"))
    };
    words.into_iter().map(parse).collect::<Result<_, _>>().map(Some)
}

pub(crate) fn run(context: &Context, arguments: Arguments) -> Result<ExitCode, Failure> {
    let change = PolicyChange {
        allow_internet: arguments.internet.map(Switch::is_on),
        allow_inter_vm: arguments.inter_vm.map(Switch::is_on),
        allowed_ports: ports(arguments.allow_port)?,
        allow_domains: list(arguments.allow_domain),
        deny_domains: list(arguments.deny_domain),
        allow_cidrs: list(arguments.allow_cidr),
        deny_cidrs: list(arguments.deny_cidr),
        bandwidth_mbps: arguments.bandwidth.map(|mbps| Some(mbps).filter(|mbps| *mbps != 0)),
    };
    let wanted = &arguments.workspace;
    let workspace = runtime::block_on(async { Client::open(context).await?.policy(wanted, change).await })??;
    match arguments.json {
        true => output::json(&workspace.network)?,
        false => {
            output::line(&format!(
                "{} may reach: {}",
                workspace.name,
                policy_summary(&workspace.network.policy)
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
