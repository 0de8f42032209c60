//! `snapshot_create`: one action of `snapshot`, for small models and earlier clients.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::snapshots::{self, ALIAS_SNAPSHOT_NAME, INCLUDE_MEMORY, NEW_NAME};
use super::view::schema;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "snapshot_create",
    title: "Take a snapshot",
    description: "Save the state of a running workspace, to return to with snapshot_restore. Cheap: take one \
                  before every risky step.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Required(&NEW_NAME),
        Slot::Optional(&INCLUDE_MEMORY),
        Slot::Alias(&ALIAS_SNAPSHOT_NAME),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({
        "snapshot_id": schema::text(), "name": schema::text(), "workspace_id": schema::text(),
        "has_memory": schema::flag(), "created_at": schema::text(), "pause_ms": schema::optional("number"),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let name = args.required_as(&NEW_NAME, &ALIAS_SNAPSHOT_NAME);
    let memory = args.optional(&INCLUDE_MEMORY);
    let (workspace, name, include_memory) =
        args.finish((|| Some((workspace?, name?, memory?.unwrap_or(false))))())?;
    Ok(Box::pin(async move { snapshots::create(&call, &workspace, name, include_memory).await }))
}
