//! `port_forward_remove`: a tool of earlier versions, replaced by an action of `port_forward`.

use serde_json::{Value, json};

use super::port_forward::{self, GUEST_PORT};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "port_forward_remove",
    title: "Remove a port forward",
    description: "Stop forwarding a host port to a workspace.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&GUEST_PORT)],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({ "workspace_id": schema::text(), "guest_port": schema::integer() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let guest_port = args.required(&GUEST_PORT);
    let (workspace, guest_port) = args.finish((|| Some((workspace?, u16::try_from(guest_port?).ok()?)))())?;
    Ok(Box::pin(async move { port_forward::remove(&call, &workspace, guest_port).await }))
}
