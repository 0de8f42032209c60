//! `workspace_adopt`: takes over workspaces of sessions that ended.

use agentiso_core::names::WorkspaceRef;
use agentiso_daemon::Session;
use serde_json::{Value, json};

use super::view;
use crate::answer::{Answer, Failure};
use crate::args::{Flag, Invalid, Reader, Slot, Workspace};
use crate::registry::{Call, Hints, Running, Tool};

const WORKSPACE: Workspace =
    Workspace::new("workspace_id", "Name or UUID. Default: all without a live owner.");
const FORCE: Flag =
    Flag::new("force", "Also from a connected session that made no call for 60 s.").default(false);

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_adopt",
    title: "Adopt workspaces",
    description: "Take over one or all workspaces of ended sessions. Use it when a call fails with not_owned.",
    slots: &[Slot::Optional(&WORKSPACE), Slot::Optional(&FORCE)],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: true },
    prepare,
};

fn output() -> Value {
    let text = json!({ "type": "string", "optional": true });
    let optional = |kind: &str| json!({ "type": kind, "optional": true });
    json!({
        "workspace_id": text, "name": text, "state": text, "ip": text, "forced": optional("boolean"),
        "adopted": { "type": ["boolean", "array"] },
        "adopted_count": optional("integer"), "error_count": optional("integer"), "errors": optional("array"),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.optional(&WORKSPACE);
    let force = args.optional(&FORCE);
    let (workspace, force) = args.finish((|| Some((workspace?, force?.unwrap_or(false))))())?;
    Ok(Box::pin(async move {
        match workspace {
            Some(workspace) => one(&call.session, &workspace, force).await,
            None => all(&call.session, force).await,
        }
    }))
}

async fn one(session: &Session, workspace: &WorkspaceRef, force: bool) -> Result<Answer, Failure> {
    let adopted = session.adopt(workspace, force).await?;
    let info = adopted.info;
    Ok(Answer::json(json!({
        "workspace_id": info.id,
        "name": info.name,
        "state": view::state(info.state),
        "ip": info.ip,
        "adopted": true,
        "forced": adopted.forced,
    })))
}

async fn all(session: &Session, force: bool) -> Result<Answer, Failure> {
    let bulk = session.adopt_all(force).await;
    let adopted: Vec<Value> = bulk.adopted.iter().map(view::brief).collect();
    let errors: Vec<Value> =
        bulk.errors.iter().map(|(id, error)| json!({ "workspace_id": id, "error": error })).collect();
    Ok(Answer::json(json!({
        "adopted_count": adopted.len(),
        "adopted": adopted,
        "error_count": errors.len(),
        "errors": errors,
    })))
}
