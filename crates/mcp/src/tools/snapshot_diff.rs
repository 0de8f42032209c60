//! `snapshot_diff`: one action of `snapshot`, for earlier clients.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::snapshots::{self, ALIAS_NAME, SNAPSHOT_NAME};
use super::view::schema;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "snapshot_diff",
    title: "Compare with a snapshot",
    description: "Show how a workspace's disk differs from a snapshot: changed bytes, and added, modified and \
                  removed paths.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&SNAPSHOT_NAME), Slot::Alias(&ALIAS_NAME)],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    let list = schema::optional("array");
    let count = schema::optional("integer");
    json!({
        "snapshot_name": schema::text(), "changed_bytes": schema::integer(),
        "added": list, "modified": list, "removed": list,
        "added_count": count, "modified_count": count, "removed_count": count,
        "paths_unknown": schema::optional_text(), "note": schema::optional_text(),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let name = args.required_as(&SNAPSHOT_NAME, &ALIAS_NAME);
    let (workspace, name) = args.finish((|| Some((workspace?, name?)))())?;
    Ok(Box::pin(async move { snapshots::diff(&call, &workspace, &name).await }))
}
