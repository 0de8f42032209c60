//! `snapshot_list`: one action of `snapshot`, for earlier clients, which expect an object.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::snapshots;
use super::view::schema;
use crate::answer::Answer;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "snapshot_list",
    title: "List snapshots",
    description: "List the snapshots of a workspace, oldest first, with sizes and forks.",
    slots: &[Slot::Target(&WORKSPACE)],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    json!({ "snapshots": schema::list() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let workspace = args.finish(workspace)?;
    Ok(Box::pin(async move {
        let snapshots = snapshots::list(&call, &workspace).await?;
        Ok(Answer::json(json!({ "snapshots": snapshots })))
    }))
}
