//! `team`: workspaces that are created and destroyed together and exchange messages.

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
    title: "Teams of workspaces",
    description: "One workspace per role, created and destroyed together. Members can reach each other and \
                  send messages. A message of type task_assignment with JSON {task_id, command, workdir?, \
                  env?, timeout_secs?} as content runs in the recipient's workspace; receive returns the \
                  result. task_*: a task board in the vault.",
    slots: params::SLOTS,
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

/// Each action gives some of these.
fn output() -> Value {
    let list = schema::optional("array");
    json!({ "action": schema::text(), "members": list, "teams": list, "messages": list, "tasks": list })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let action = args.required(&params::ACTION);
    let given = params::read(&mut args);
    let work = action.and_then(|action| work::plan(action, given, &mut args));
    let work = args.finish(work)?;
    Ok(Box::pin(run::run(work, call)))
}
