//! `team`: machines that are made together, write to each other, and go together.

mod board;
mod params;
mod run;
mod view;
mod work;

use serde_json::{Value, json};

use super::view::schema;
use crate::args::{Invalid, Reader};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "team",
    title: "Work in a team of workspaces",
    description: "One workspace per role, made and destroyed together; members reach each other by network and send \
                  messages. A message of type task_assignment with content {task_id, command, workdir?, env?, \
                  timeout_secs?} as JSON text runs in the recipient's workspace; receive gives its result. task_* keep a \
                  board among the notes of the vault.",
    slots: params::SLOTS,
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

/// Each action gives some of these.
fn output() -> Value {
    let (text, list) = (schema::optional("string"), schema::optional("array"));
    json!({
        "action": schema::text(), "state": text, "members": list, "teams": list, "message_id": text, "messages": list,
        "daemon_results": list, "tasks": list,
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let action = args.required(&params::ACTION);
    let given = params::read(&mut args);
    let work = action.and_then(|action| work::plan(action, given, &mut args));
    let work = args.finish(work)?;
    Ok(Box::pin(run::run(work, call)))
}
