//! `workspace_list`: lists all workspaces of the daemon, own and foreign.

use agentiso_core::lifecycle::PublicState;
use agentiso_daemon::WorkspaceInfo;
use serde_json::{Value, json};

use super::view::{self, schema};
use crate::answer::Answer;
use crate::args::{Choice, Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

const STATE_FILTER: Choice<PublicState> = Choice::new(
    "state_filter",
    "Only those in this state.",
    &[
        ("running", PublicState::Running),
        ("stopped", PublicState::Stopped),
        ("suspended", PublicState::Suspended),
    ],
);

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_list",
    title: "List workspaces",
    description: "List all workspaces with state, address and size. Those with owned:false belong to \
                  another session.",
    slots: &[Slot::Optional(&STATE_FILTER)],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    json!({ "workspaces": schema::list() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let filter = args.optional(&STATE_FILTER);
    let filter = args.finish(filter)?;
    Ok(Box::pin(async move {
        let workspaces = call.session.list(filter);
        Ok(Answer::array("workspaces", workspaces.iter().map(item).collect()))
    }))
}

fn item(info: &WorkspaceInfo) -> Value {
    let mut item = json!({
        "workspace_id": info.id,
        "name": info.name,
        "state": view::state(info.state),
        "ip": info.ip,
        "owned": info.owned,
        "resources": view::resources(&info.resources),
    });
    if let Some(origin) = &info.forked_from {
        item["forked_from"] = view::forked_from(origin);
    }
    item
}
