//! `workspace_ip`: a tool of earlier versions, whose answer `workspace_info` contains.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::Answer;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_ip",
    title: "Address of a workspace",
    description: "Show the address of a workspace. workspace_info shows more.",
    slots: &[Slot::Target(&WORKSPACE)],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    json!({ "workspace_id": schema::text(), "ip": schema::text() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let workspace = args.finish(workspace)?;
    Ok(Box::pin(async move {
        let info = call.session.info(&workspace).await?;
        Ok(Answer::json(json!({ "workspace_id": info.id, "ip": info.ip })))
    }))
}
