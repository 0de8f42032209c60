//! `agentiso net ls`: lists the policies, forwards and last flows of all workspaces.

use std::process::ExitCode;

use agentiso_core::network::NetworkPolicy;
use agentiso_daemon::control::wire::{Event, Workspace};
use agentiso_daemon::{FlowRecord, NetworkTrouble, PortForward};
use serde_json::json;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::{output, runtime};

/// List the network access, port forwards and latest connections of all workspaces
#[derive(clap::Args, Debug)]
#[command(
    visible_alias = "list",
    after_help = "\
Examples:
  agentiso net ls
  agentiso net ls --json | jq '.[] | select(.network.allow_internet) | .name'"
)]
pub(crate) struct Arguments {
    /// Number of log lines per workspace; `agentiso net log` shows all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 3)]
    lines: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let workspaces = runtime::block_on(fetch(context, arguments.lines))??;
    if arguments.json {
        let value = |(workspace, log): &(Workspace, Vec<FlowRecord>)| {
            json!({
                "workspace_id": workspace.id, "name": workspace.name, "state": workspace.state,
                "ip": workspace.ip, "network": workspace.network,
                "problems": workspace.network_trouble.sentences(), "log": log,
            })
        };
        output::json(&workspaces.iter().map(value).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if workspaces.is_empty() {
        output::line("no workspaces; create one with `agentiso create`")?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = workspaces.iter().map(|(workspace, _)| {
        let network = &workspace.network;
        [
            workspace.name.clone(),
            workspace.ip.to_string(),
            policy_summary(&network.policy),
            forwards(&network.port_forwards, &workspace.network_trouble),
        ]
    });
    output::line(&output::table(["NAME", "IP", "MAY REACH", "FORWARDS"], rows.collect()))?;
    for (workspace, log) in &workspaces {
        for problem in workspace.network_trouble.sentences() {
            output::line(&format!("{}: {}", workspace.name, output::printable(&problem)))?;
        }
        for record in log {
            output::line(&format!("{}: {record}", workspace.name))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All workspaces, each with the last lines of its log.
async fn fetch(context: &Context, lines: usize) -> Result<Vec<(Workspace, Vec<FlowRecord>)>, Failure> {
    let mut client = Client::open(context).await?;
    let mut found = Vec::new();
    for workspace in client.workspaces().await? {
        let mut log = Vec::new();
        let keep = |event: Event| {
            if let Event::Flow(record) = event {
                log.push(record);
            }
        };
        if let Err(failure) = client.net_log(&workspace.id.to_string(), lines, false, keep).await {
            if client.workspaces().await?.iter().any(|other| other.id == workspace.id) {
                return Err(failure);
            }
            // The workspace was destroyed meanwhile.
            continue;
        }
        found.push((workspace, log));
    }
    Ok(found)
}

/// A policy in one line.
pub(super) fn policy_summary(policy: &NetworkPolicy) -> String {
    let mut parts = Vec::new();
    if policy.allow_internet {
        parts.push("internet".to_owned());
    }
    parts.extend(policy.allow_domains.iter().map(ToString::to_string));
    parts.extend(policy.allow_cidrs.iter().map(ToString::to_string));
    if policy.allow_inter_vm {
        parts.push("workspaces".to_owned());
    }
    if parts.is_empty() {
        parts.push("nothing".to_owned());
    }
    let denied = policy.deny_domains.iter().map(ToString::to_string);
    let denied: Vec<_> = denied.chain(policy.deny_cidrs.iter().map(ToString::to_string)).collect();
    if !denied.is_empty() {
        parts.push(format!("not {}", denied.join(" ")));
    }
    if let Some(mbps) = policy.bandwidth_mbps {
        parts.push(format!("{mbps} Mbit/s"));
    }
    parts.join(", ")
}

fn forwards(forwards: &[PortForward], trouble: &NetworkTrouble) -> String {
    let one = |PortForward { host_port, guest_port }: &PortForward| {
        let silent = if trouble.forwards.contains_key(guest_port) { " (not listening)" } else { "" };
        format!("127.0.0.1:{host_port} → {guest_port}{silent}")
    };
    match forwards {
        [] => "-".to_owned(),
        some => some.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_that_does_not_listen_is_marked() {
        let both =
            [(3000, 80), (3001, 81)].map(|(host_port, guest_port)| PortForward { host_port, guest_port });
        let trouble = NetworkTrouble { forwards: [(81, "in use".to_owned())].into(), ..Default::default() };
        let told = forwards(&both, &trouble);
        assert_eq!(told, "127.0.0.1:3000 → 80, 127.0.0.1:3001 → 81 (not listening)");
        assert_eq!(forwards(&[], &trouble), "-");
    }

    #[test]
    fn policy_is_summarized_in_one_line() {
        assert_eq!(policy_summary(&NetworkPolicy::default()), "nothing");
        let policy: NetworkPolicy = serde_json::from_value(json!({
            "allow_domains": ["example.com:443"], "deny_cidrs": ["192.0.2.0/24"], "bandwidth_mbps": 5,
        }))
        .unwrap();
        assert_eq!(policy_summary(&policy), "example.com:443, not 192.0.2.0/24, 5 Mbit/s");
    }
}
