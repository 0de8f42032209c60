//! `file_edit`: one replacement in a file.

use serde_json::{Value, json};

use super::shared::{MAX_FILE, PATH, WORKSPACE, file_failure};
use super::view::schema;
use crate::answer::Answer;
use crate::args::{Invalid, Reader, Slot, Text};
use crate::registry::{Call, Hints, Running, Tool};

const OLD: Text = Text {
    name: "old_string",
    about: "Text to replace, exactly as in the file; only its first occurrence is.",
    min: 1,
    max: MAX_FILE as usize,
    nul: true,
};
const NEW: Text =
    Text { name: "new_string", about: "Text to put there.", min: 0, max: MAX_FILE as usize, nul: true };

pub(crate) const TOOL: Tool = Tool {
    name: "file_edit",
    title: "Edit a file",
    description: "Replace the first occurrence of a text in a file. Give enough context to make it unique. An error \
                  if the text or the file is not there. To replace a whole file use file_write.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Required(&PATH), Slot::Required(&OLD), Slot::Required(&NEW)],
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({ "path": schema::text(), "replacements": schema::integer() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let path = args.required(&PATH);
    let old = args.required(&OLD);
    let new = args.required(&NEW);
    let (workspace, path, old, new) = args.finish((|| Some((workspace?, path?, old?, new?)))())?;
    Ok(Box::pin(async move {
        let guest = call.session.guest(&workspace).await?;
        let count =
            guest.edit_file(&path, &old, &new, false).await.map_err(|error| file_failure(error, &path))?;
        Ok(Answer::text(
            format!("Replaced the first occurrence in {path} in workspace {}.", guest.name()),
            json!({ "path": path.as_str(), "replacements": count }),
        ))
    }))
}
