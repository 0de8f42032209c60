//! `exec_poll`: a tool of earlier versions, replaced by an action of `exec_background`.

use serde_json::{Value, json};

use super::jobs::{self, JOB_ID};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "exec_poll",
    title: "Poll a background job",
    description: "Show the state and output of a job of exec_background.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&JOB_ID)],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    json!({
        "job_id": schema::integer(), "running": schema::flag(), "exit_code": schema::integer_or_null(),
        "stdout": schema::text(), "stderr": schema::text(),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let id = args.required(&JOB_ID);
    let (workspace, id) = args.finish((|| Some((workspace?, id?)))())?;
    Ok(Box::pin(async move {
        let guest = call.session.guest(&workspace).await?;
        jobs::poll(&guest, jobs::Poll { id, offsets: [0, 0], wait_secs: 0 }, &call.progress).await
    }))
}
