//! `workspace_destroy`: deletes a workspace and everything in it.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::Answer;
use crate::args::{Flag, Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

const FORCE: Flag =
    Flag::new("force", "Also if its session is connected but made no call for 60 s.").default(false);

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_destroy",
    title: "Destroy a workspace",
    description: "Permanently delete a workspace, its disk and its snapshots. To keep the disk use workspace_stop.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Optional(&FORCE)],
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({ "workspace_id": schema::text(), "name": schema::text(), "destroyed": schema::flag() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let force = args.optional(&FORCE);
    let (workspace, force) = args.finish((|| Some((workspace?, force?.unwrap_or(false))))())?;
    Ok(Box::pin(async move {
        call.progress.report("removing the VM and its disk", None);
        let info = call.session.destroy_by_force(&workspace, force).await?;
        Ok(Answer::text(
            format!("Workspace {} ({}) destroyed.", info.name, info.id),
            json!({ "workspace_id": info.id, "name": info.name, "destroyed": true }),
        ))
    }))
}
