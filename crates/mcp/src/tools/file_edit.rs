//! `file_edit`: replaces a text in a file.

use agentiso_core::paths::GuestPath;
use agentiso_daemon::{Guest, OpError};
use serde_json::{Value, json};

use super::shared::{MAX_FILE, PATH, WORKSPACE, file_failure};
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Flag, Invalid, Reader, Slot, Text};
use crate::nearest::{self, Nearest};
use crate::registry::{Call, Hints, Running, Tool};

/// Bytes of a file that are searched for a similar passage.
const MAX_SEARCHED: u64 = 1 << 20;

const OLD: Text = Text {
    nul: true,
    ..Text::new("old_string", "Text to replace, exactly as in the file.", MAX_FILE as usize)
};
const NEW: Text =
    Text { min: 0, nul: true, ..Text::new("new_string", "Replacement text.", MAX_FILE as usize) };

const ALL: Flag = Flag::new("replace_all", "Replace every occurrence instead of the first.").default(false);

pub(crate) const TOOL: Tool = Tool {
    name: "file_edit",
    title: "Edit a file",
    description: "Replace text in a file. If it is not found, the error shows the nearest match. To replace a \
                  whole file use file_write.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Required(&PATH),
        Slot::Required(&OLD),
        Slot::Required(&NEW),
        Slot::Optional(&ALL),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
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
    let all = args.optional(&ALL);
    let (workspace, path, old, new, all) =
        args.finish((|| Some((workspace?, path?, old?, new?, all?.unwrap_or(false))))())?;
    Ok(Box::pin(async move {
        let guest = call.session.guest(&workspace).await?;
        let count = match guest.edit_file(&path, &old, &new, all).await {
            Ok(count) => count,
            Err(error) => return Err(failure(error, &guest, &path, old).await),
        };
        let what = match (all, count) {
            (false, _) => "the first occurrence".to_owned(),
            (true, 1) => "the only occurrence".to_owned(),
            (true, count) => format!("all {count} occurrences"),
        };
        Ok(Answer::text(
            format!("Replaced {what} in {path} in workspace {}.", guest.name()),
            json!({ "path": path.as_str(), "replacements": count }),
        ))
    }))
}

/// Shows the passage that is most similar to a text that is not there: mostly it differs in white space or in one word.
async fn failure(error: OpError, guest: &Guest, path: &GuestPath, wanted: String) -> Failure {
    let mut failure = file_failure(error, path);
    if failure.code != "no_match" {
        return failure;
    }
    // If the file cannot be read, the failure is sufficient without the passage.
    let Ok(content) = guest.read_file(path, 0, MAX_SEARCHED).await else { return failure };
    let search = move || nearest::find(&String::from_utf8_lossy(&content.data), &wanted);
    let Ok(Some(Nearest { line, text, only_space })) = tokio::task::spawn_blocking(search).await else {
        return failure;
    };
    let why = if only_space { " and differs only in white space" } else { "" };
    failure.appendix = format!("\n\nThe nearest text begins at line {line}{why}:\n{text}");
    failure.details.push(("nearest", json!({ "line": line, "text": text, "only_white_space": only_space })));
    failure
}
