//! `workspace_info`: shows everything about one workspace.

use agentiso_daemon::{WorkspaceInfo, jail_of};
use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::view::{self, schema};
use crate::answer::Answer;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_info",
    title: "Inspect a workspace",
    description: "Show one workspace: state, address, size, network policy, snapshots, disk use, and why it \
                  stopped if it was not asked to.",
    slots: &[Slot::Target(&WORKSPACE)],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    let optional = json!({ "type": "integer", "optional": true });
    json!({
        "workspace_id": schema::text(), "name": schema::text(), "state": schema::text(),
        "base_image": schema::text(), "ip": schema::text(), "owned": schema::flag(), "resources": schema::object(),
        "network": schema::object(), "snapshots": schema::list(), "created_at": schema::text(),
        "disk_used_bytes": optional, "disk_volsize_bytes": optional, "stop_reason": schema::optional_text(),
        "forked_from": schema::optional("object"), "team": schema::optional_text(), "jail": schema::optional_text(),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let workspace = args.finish(workspace)?;
    Ok(Box::pin(async move { Ok(Answer::json(view_of(&call.session.info(&workspace).await?))) }))
}

pub(crate) fn view_of(info: &WorkspaceInfo) -> Value {
    let forwards: Vec<Value> = info
        .network
        .port_forwards
        .iter()
        .map(|forward| json!({ "host_port": forward.host_port, "guest_port": forward.guest_port }))
        .collect();
    let mut network = view::policy(&info.network.policy);
    network["port_forwards"] = forwards.into();
    let problems = info.network_trouble.sentences();
    if !problems.is_empty() {
        network["problems"] = problems.into();
    }
    let snapshots: Vec<Value> = info.snapshots.iter().map(view::snapshot).collect();
    let mut view = json!({
        "workspace_id": info.id,
        "name": info.name,
        "state": view::state(info.state),
        "base_image": info.base_image,
        "ip": info.ip,
        "owned": info.owned,
        "resources": view::resources(&info.resources),
        "network": network,
        "snapshots": snapshots,
        "created_at": info.created_at.to_string(),
    });
    // Unknown values are left out, as the contract demands.
    let optional = [
        ("disk_used_bytes", info.disk_used_bytes.map(Value::from)),
        ("disk_volsize_bytes", info.disk_volsize_bytes.map(Value::from)),
        ("stop_reason", info.stop_reason.clone().map(Value::from)),
        ("forked_from", info.forked_from.as_ref().map(view::forked_from)),
        ("team", info.team.as_ref().map(|team| team.as_str().into())),
        // The kernel's view of the process, even if an earlier daemon started it.
        ("jail", info.pid.and_then(jail_of).map(|jail| jail.as_str().into())),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            view[key] = value;
        }
    }
    view
}
