//! `snapshot_delete`: one action of `snapshot`, for earlier clients.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::snapshots::{self, ALIAS_NAME, SNAPSHOT_NAME};
use super::view::schema;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "snapshot_delete",
    title: "Delete a snapshot",
    description: "Delete a snapshot and free the space that only it uses. Refused while forks of it exist.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&SNAPSHOT_NAME), Slot::Alias(&ALIAS_NAME)],
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({ "snapshot_id": schema::text(), "name": schema::text(), "deleted": schema::flag() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let name = args.required_as(&SNAPSHOT_NAME, &ALIAS_NAME);
    let (workspace, name) = args.finish((|| Some((workspace?, name?)))())?;
    Ok(Box::pin(async move { snapshots::delete(&call, &workspace, &name).await }))
}
