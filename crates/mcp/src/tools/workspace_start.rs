//! `workspace_start`: boots a stopped workspace from its disk.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::view::{self, schema};
use crate::answer::Answer;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_start",
    title: "Start a workspace",
    description: "Boot a stopped workspace from its disk; returns when it is ready for exec. Fails if it is \
                  already running.",
    slots: &[Slot::Target(&WORKSPACE)],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({
        "workspace_id": schema::text(), "name": schema::text(), "state": schema::text(),
        "warnings": schema::optional("array"),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let workspace = args.finish(workspace)?;
    Ok(Box::pin(async move {
        let info = call.session.start(&workspace, &call.progress.as_progress()).await?;
        let mut answer = view::brief(&info);
        view::warn(&mut answer, &info);
        let warnings =
            info.network_trouble.sentences().into_iter().map(|warning| format!(" Warning: {warning}."));
        let text = format!("Workspace {} ({}) started.", info.name, info.id) + &warnings.collect::<String>();
        Ok(Answer::text(text, answer))
    }))
}
