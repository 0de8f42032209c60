//! `exec_kill`: a tool of earlier versions, replaced by an action of `exec_background`.

use serde_json::{Value, json};

use super::jobs::{self, JOB_ID, SIGNAL};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "exec_kill",
    title: "Kill a background job",
    description: "Kill a job of exec_background and everything it started.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&JOB_ID), Slot::Optional(&SIGNAL)],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: true },
    prepare,
};

fn output() -> Value {
    json!({ "job_id": schema::integer(), "signal": schema::integer(), "status": schema::text() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let id = args.required(&JOB_ID);
    let signal = args.optional(&SIGNAL);
    let (workspace, id, signal) =
        args.finish((|| Some((workspace?, id?, signal?.unwrap_or(jobs::KILL))))())?;
    Ok(Box::pin(async move {
        let guest = call.session.guest(&workspace).await?;
        jobs::kill(&guest, id, signal).await
    }))
}
