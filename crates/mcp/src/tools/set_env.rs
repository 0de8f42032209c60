//! `set_env`: sets variables for all commands of a workspace.

use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::Answer;
use crate::args::{Env, Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

const VARS: Env =
    Env { name: "vars", about: "Names and values. PATH, IFS, ENV, BASH_ENV and LD_* are refused." };

pub(crate) const TOOL: Tool = Tool {
    name: "set_env",
    title: "Set environment variables",
    description: "Set variables for all later commands in a workspace, such as API keys. Kept in memory only: \
                  lost on stop, included in snapshots with memory.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&VARS)],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: true },
    prepare,
};

fn output() -> Value {
    json!({ "count": schema::integer(), "status": schema::text() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let vars = args.required(&VARS);
    let (workspace, vars) = args.finish((|| Some((workspace?, vars?)))())?;
    Ok(Box::pin(async move {
        let guest = call.session.guest(&workspace).await?;
        let count = vars.len();
        guest.set_env(vars).await?;
        Ok(Answer::json(json!({ "count": count, "status": "set" })))
    }))
}
