//! `port_forward`: forwards ports of the host into a workspace.

use agentiso_core::names::WorkspaceRef;
use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Choice, Integer, Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

/// Lower ports belong to the system.
const LEAST_HOST_PORT: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Add,
    Remove,
}

const ACTION: Choice<Action> =
    Choice::new("action", "What to do.", &[("add", Action::Add), ("remove", Action::Remove)]).default("add");
pub(super) const GUEST_PORT: Integer =
    Integer::new("guest_port", "TCP port inside the workspace.", 1..=u16::MAX as u64);
const HOST_PORT: Integer = Integer::new(
    "host_port",
    "add: host port on 127.0.0.1. Default: a free one.",
    LEAST_HOST_PORT..=u16::MAX as u64,
);

pub(crate) const TOOL: Tool = Tool {
    name: "port_forward",
    title: "Forward a host port to a workspace",
    description: "Forward a port of the host's 127.0.0.1 to a server in a workspace, until removed or the \
                  workspace is destroyed. The server must not listen on localhost only.",
    slots: &[
        Slot::Optional(&ACTION),
        Slot::Target(&WORKSPACE),
        Slot::Required(&GUEST_PORT),
        Slot::Optional(&HOST_PORT),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

/// `remove` answers with a sentence.
fn output() -> Value {
    let port = schema::optional("integer");
    json!({ "workspace_id": schema::optional("string"), "guest_port": port, "host_port": port })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let action = args.optional(&ACTION).map(|action| action.unwrap_or(Action::Add));
    let written = args.written(&WORKSPACE);
    let workspace = args.target(&WORKSPACE, &call.implied);
    let guest_port = args.required(&GUEST_PORT);
    let host_port = args.optional(&HOST_PORT);
    let (action, workspace, guest_port, host_port) = args.finish((|| {
        let port = |port: u64| u16::try_from(port).ok();
        Some((action?, workspace?, port(guest_port?)?, host_port?.and_then(port)))
    })())?;
    Ok(Box::pin(async move {
        match action {
            Action::Add => {
                let (id, added) = call.session.forward_port(&workspace, guest_port, host_port).await?;
                Ok(Answer::json(json!({
                    // As the client wrote it, which the tool contract demands for this answer.
                    "workspace_id": written.unwrap_or_else(|| id.to_string()),
                    "guest_port": added.guest_port,
                    "host_port": added.host_port,
                })))
            }
            Action::Remove => remove(&call, &workspace, guest_port).await,
        }
    }))
}

pub(super) async fn remove(
    call: &Call,
    workspace: &WorkspaceRef,
    guest_port: u16,
) -> Result<Answer, Failure> {
    let info = call.session.end_forward(workspace, guest_port).await?;
    let text = format!("Port {guest_port} of workspace {} is no longer forwarded.", info.name);
    Ok(Answer::text(text, json!({ "workspace_id": info.id, "guest_port": guest_port })))
}
