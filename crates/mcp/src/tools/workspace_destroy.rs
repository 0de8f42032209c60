//! `workspace_destroy`: the end of a workspace and everything in it.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::Answer;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_destroy",
    title: "Destroy a workspace",
    description: "Delete a workspace with its disk and snapshots, for good. To keep the disk use \
                  workspace_stop.",
    slots: &[Slot::Target(&WORKSPACE)],
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({ "workspace_id": schema::text(), "name": schema::text(), "destroyed": schema::flag() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let workspace = args.finish(workspace)?;
    Ok(Box::pin(async move {
        call.progress.report("removing the machine and its disk", None);
        let info = call.session.destroy(&workspace).await?;
        Ok(Answer::text(
            format!("Workspace {} ({}) destroyed.", info.name, info.id),
            json!({ "workspace_id": info.id, "name": info.name, "destroyed": true }),
        ))
    }))
}
