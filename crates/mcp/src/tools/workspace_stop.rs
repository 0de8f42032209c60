//! `workspace_stop`: powers a workspace off and keeps its disk.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::view::{self, schema};
use crate::answer::Answer;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_stop",
    title: "Stop a workspace",
    description: "Shut down a workspace and keep its disk; running processes end. Frees memory until \
                  workspace_start. Fails if it is not running.",
    slots: &[Slot::Target(&WORKSPACE)],
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({ "workspace_id": schema::text(), "name": schema::text(), "state": schema::text() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let workspace = args.finish(workspace)?;
    Ok(Box::pin(async move {
        call.progress.report("shutting down the VM", None);
        let info = call.session.stop(&workspace).await?;
        Ok(Answer::text(format!("Workspace {} ({}) stopped.", info.name, info.id), view::brief(&info)))
    }))
}
