//! `snapshot_restore`: one action of `snapshot`, for small models and earlier clients.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::snapshots::{self, ALIAS_NAME, SNAPSHOT_NAME};
use super::view::schema;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "snapshot_restore",
    title: "Restore a snapshot",
    description: "Restore a workspace to a snapshot; all later changes are lost. It is running afterwards, \
                  even if it was stopped. The snapshot is kept.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&SNAPSHOT_NAME), Slot::Alias(&ALIAS_NAME)],
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: true },
    prepare,
};

fn output() -> Value {
    json!({
        "workspace_id": schema::text(), "name": schema::text(), "state": schema::text(),
        "snapshot_name": schema::text(), "processes_restored": schema::flag(),
        "warning": schema::optional_text(),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let name = args.required_as(&SNAPSHOT_NAME, &ALIAS_NAME);
    let (workspace, name) = args.finish((|| Some((workspace?, name?)))())?;
    Ok(Box::pin(async move { snapshots::restore(&call, &workspace, &name).await }))
}
