//! `network_policy`: changes what a workspace may reach.

use agentiso_core::network::{MAX_BANDWIDTH_MBPS, MAX_RULES, NetworkPolicy, PolicyChange};
use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::view::{self, schema};
use crate::answer::Answer;
use crate::args::{Flag, Integer, Invalid, Ports, Reader, Slot, Texts};
use crate::registry::{Call, Hints, Running, Tool};

/// A domain has at most 253 bytes, and ports may follow.
const MAX_RULE: usize = 512;

const ALLOW_INTERNET: Flag = Flag::new(
    "allow_internet",
    "Allow all public addresses. Private, host and metadata addresses stay blocked.",
);
const ALLOW_INTER_VM: Flag =
    Flag::new("allow_inter_vm", "Allow other workspaces that also set it, by address or name.");
const ALLOWED_PORTS: Ports =
    Ports { name: "allowed_ports", about: "TCP ports that other workspaces may connect to. Empty: all." };
const ALLOW_DOMAINS: Texts = Texts {
    name: "allow_domains",
    about: "Domains to allow without allow_internet: \"example.com\", \"*.example.com\", \"example.com:443\".",
    max_items: MAX_RULES,
    max: MAX_RULE,
};
const DENY_DOMAINS: Texts = Texts {
    name: "deny_domains",
    about: "Domains to block. Also blocks connections that hide their domain.",
    max_items: MAX_RULES,
    max: MAX_RULE,
};
const ALLOW_CIDRS: Texts = Texts {
    name: "allow_cidrs",
    about: "Addresses to allow; the only way to reach private ones: \"10.0.0.0/8:5432\".",
    max_items: MAX_RULES,
    max: MAX_RULE,
};
const DENY_CIDRS: Texts =
    Texts { name: "deny_cidrs", about: "Addresses to block.", max_items: MAX_RULES, max: MAX_RULE };
const BANDWIDTH_MBPS: Integer =
    Integer::new("bandwidth_mbps", "Limit each way. 0: no limit.", 0..=MAX_BANDWIDTH_MBPS as u64);

pub(crate) const TOOL: Tool = Tool {
    name: "network_policy",
    title: "Change a workspace's network policy",
    description: "Change what a workspace may reach: nothing by default. Takes effect at once, also on open \
                  connections. Omitted fields keep their value; a list replaces the old one. Prefer \
                  allow_domains to allow_internet. workspace_logs (log_type network) shows why a connection \
                  was refused.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Optional(&ALLOW_INTERNET),
        Slot::Optional(&ALLOW_INTER_VM),
        Slot::Optional(&ALLOWED_PORTS),
        Slot::Optional(&ALLOW_DOMAINS),
        Slot::Optional(&DENY_DOMAINS),
        Slot::Optional(&ALLOW_CIDRS),
        Slot::Optional(&DENY_CIDRS),
        Slot::Optional(&BANDWIDTH_MBPS),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: true },
    prepare,
};

fn output() -> Value {
    json!({ "workspace_id": schema::text(), "network_policy": schema::object() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let written = args.written(&WORKSPACE);
    let workspace = args.target(&WORKSPACE, &call.implied);
    let allow_internet = args.optional(&ALLOW_INTERNET);
    let allow_inter_vm = args.optional(&ALLOW_INTER_VM);
    let allowed_ports = args.optional(&ALLOWED_PORTS);
    let allow_domains = args.optional(&ALLOW_DOMAINS);
    let deny_domains = args.optional(&DENY_DOMAINS);
    let allow_cidrs = args.optional(&ALLOW_CIDRS);
    let deny_cidrs = args.optional(&DENY_CIDRS);
    let bandwidth = args.optional(&BANDWIDTH_MBPS);
    let change = (|| {
        Some(PolicyChange {
            allow_internet: allow_internet?,
            allow_inter_vm: allow_inter_vm?,
            allowed_ports: allowed_ports?,
            allow_domains: allow_domains?,
            deny_domains: deny_domains?,
            allow_cidrs: allow_cidrs?,
            deny_cidrs: deny_cidrs?,
            bandwidth_mbps: bandwidth?.map(|mbps| i64::try_from(mbps).ok().filter(|mbps| *mbps > 0)),
        })
    })();
    if let Some(Err(problems)) = change.as_ref().map(|change| change.apply_to(&NetworkPolicy::default())) {
        for problem in problems.iter() {
            args.complain(&problem.path, problem.message.clone());
        }
    }
    let (workspace, change) = args.finish((|| Some((workspace?, change?)))())?;
    Ok(Box::pin(async move {
        let info = call.session.change_policy(&workspace, &change).await?;
        Ok(Answer::json(json!({
            // As the client wrote it, which the tool contract demands for this answer.
            "workspace_id": written.unwrap_or_else(|| info.id.to_string()),
            "network_policy": view::policy(&info.network.policy),
        })))
    }))
}
