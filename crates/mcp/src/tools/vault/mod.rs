//! `vault`: reads, writes and searches notes on the host that outlive every workspace.

pub(super) mod budget;
mod params;
mod run;
mod work;

use serde_json::{Value, json};

use super::view::schema;
use crate::args::{Invalid, Reader};
use crate::registry::{Call, Hints, Running, Tool};

pub(crate) const TOOL: Tool = Tool {
    name: "vault",
    title: "Read, write and search notes",
    description: "Markdown notes on the host, shared by all sessions and kept when workspaces are \
                  destroyed: plans, findings, task boards. Paths are relative to the vault.",
    slots: params::SLOTS,
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

/// Each action gives some of these.
fn output() -> Value {
    let (text, count, list) =
        (schema::optional("string"), schema::optional("integer"), schema::optional("array"));
    json!({
        "path": text, "content": text, "size": count, "frontmatter": {"optional": true}, "results": list,
        "result_count": count, "entries": list, "count": count, "tags": list, "replacements": count,
        "moved": schema::optional("boolean"), "notes": list, "total_notes": count, "recent_files": list,
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    // Without a vault no correction by the client helps, so that is reported first.
    if let Err(error) = call.session.vault_settings() {
        return Ok(Box::pin(async move { Err(error.into()) }));
    }
    let action = args.required(&params::ACTION);
    let given = params::read(&mut args);
    let work = action.and_then(|action| work::plan(action, given, &mut args));
    let work = args.finish(work)?;
    Ok(Box::pin(async move { Ok(call.session.vault(move |vault| run::run(vault, work)).await?) }))
}
