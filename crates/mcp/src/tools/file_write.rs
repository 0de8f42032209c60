//! `file_write`: writes a whole file.

use agentiso_daemon::WriteFile;
use serde_json::{Value, json};

use super::shared::{MAX_FILE, PATH, WORKSPACE, file_failure};
use super::view::schema;
use crate::answer::Answer;
use crate::args::{FileMode, Invalid, Reader, Slot, Text};
use crate::registry::{Call, Hints, Running, Tool};

const DEFAULT_MODE: u32 = 0o644;

const CONTENT: Text =
    Text { min: 0, nul: true, ..Text::new("content", "The complete new content.", MAX_FILE as usize) };
const MODE: FileMode =
    FileMode { name: "mode", about: "Permissions in octal, such as \"0755\" for a script.", default: "0644" };

pub(crate) const TOOL: Tool = Tool {
    name: "file_write",
    title: "Write a file",
    description: "Create or replace a text file of up to 32 MiB; missing directories are created. To change \
                  part of a file use file_edit.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Required(&PATH),
        Slot::Required(&CONTENT),
        Slot::Optional(&MODE),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: true },
    prepare,
};

fn output() -> Value {
    json!({ "path": schema::text(), "bytes": schema::integer() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let path = args.required(&PATH);
    let content = args.required(&CONTENT);
    let mode = args.optional(&MODE);
    let (workspace, path, content, mode) =
        args.finish((|| Some((workspace?, path?, content?, mode?.unwrap_or(DEFAULT_MODE))))())?;
    Ok(Box::pin(async move {
        let guest = call.session.guest(&workspace).await?;
        let bytes = content.len();
        let file = WriteFile { path: path.clone(), mode: Some(mode), create_parents: true };
        guest.write_file(file, content.into()).await.map_err(|error| file_failure(error, &path))?;
        Ok(Answer::text(
            format!("Wrote {bytes} bytes to {path} in workspace {}.", guest.name()),
            json!({ "path": path.as_str(), "bytes": bytes }),
        ))
    }))
}
