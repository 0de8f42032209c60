//! `agentiso logs`: shows a VM's console and QEMU's messages, read from their files.
//!
//! The daemon is not used, because logs matter most when something does not answer.

use std::path::Path;
use std::process::ExitCode;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::suggest;
use agentiso_daemon::ledger::{self, LedgerDocument};
use agentiso_sys::files;
use serde::Serialize;

use crate::context::Context;
use crate::failure::Failure;
use crate::output;

/// The most bytes of a log to read. A guest may print without end, and the last lines never need more.
const MAX_TAIL_BYTES: u64 = 4 << 20;

/// Show a workspace's console and QEMU's messages
///
/// Logs are kept until the workspace is destroyed, even if it is stopped or failed to start.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso logs dev
  agentiso logs dev -n 200
  agentiso logs 3f9c1a          by the beginning of an id")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    /// Number of console lines to show
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    lines: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Logs {
    workspace_id: WorkspaceId,
    console: String,
    stderr: String,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let paths = &context.config.paths;
    let document = ledger::read(&paths.state_file)?.into_document();
    let id = find(document.as_ref(), &arguments.workspace)?;
    let dir = paths.workspace_data(&id);
    let logs = Logs {
        workspace_id: id,
        console: last_lines(&tail(&dir.join("console.log"))?, arguments.lines).to_owned(),
        stderr: tail(&dir.join("stderr.log"))?,
    };
    if arguments.json {
        output::json(&logs)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (title, text) in [("console", &logs.console), ("QEMU", &logs.stderr)] {
        if text.is_empty() {
            output::line(&format!("--- {title}: empty"))?;
        } else {
            output::line(&format!("--- {title}"))?;
            output::line(&output::printable(text.trim_end()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds a workspace, by name first: a name may look like the beginning of an id.
fn find(document: Option<&LedgerDocument>, wanted: &str) -> Result<WorkspaceId, Failure> {
    let unknown = || {
        Failure::new(format!("there is no workspace {wanted:?}"))
            .hint("`agentiso status` lists all workspaces")
    };
    let workspaces = &document.ok_or_else(unknown)?.workspaces;
    if let Some((id, _)) = workspaces.iter().find(|(_, stored)| stored.name.as_str() == wanted) {
        return Ok(*id);
    }
    let prefix = wanted.to_ascii_lowercase();
    let mut matching =
        workspaces.keys().filter(|id| !prefix.is_empty() && id.to_string().starts_with(&prefix));
    match (matching.next(), matching.count()) {
        (Some(id), 0) => Ok(*id),
        (Some(_), others) => {
            Err(Failure::new(format!("{wanted:?} matches the beginning of {} ids", others + 1))
                .hint("give more digits"))
        }
        (None, _) => {
            let names = workspaces.values().map(|stored| stored.name.as_str());
            let near = suggest::nearest(wanted, names).map(|name| format!("did you mean {name:?}?"));
            Err(unknown().maybe_hint(near))
        }
    }
}

/// The end of a file; empty if the file does not exist.
fn tail(path: &Path) -> Result<String, Failure> {
    let (bytes, _) = files::read_tail(path, MAX_TAIL_BYTES)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_lines(text: &str, count: usize) -> &str {
    if count == 0 {
        return "";
    }
    let body = text.strip_suffix('\n').unwrap_or(text);
    match body.rmatch_indices('\n').nth(count - 1) {
        Some((at, _)) => &text[at + 1..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_returns_whole_lines() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(last_lines("a\nb\nc", 2), "b\nc");
        assert_eq!(last_lines("a\n", 5), "a\n");
        assert_eq!(last_lines("a\n", 0), "");
        assert_eq!(last_lines("", 3), "");
    }

    #[test]
    fn missing_log_is_empty_and_huge_truncated() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(tail(&dir.path().join("none")).unwrap(), "");
        let path = dir.path().join("huge");
        std::fs::write(&path, vec![b'x'; (MAX_TAIL_BYTES + 10) as usize]).unwrap();
        assert_eq!(tail(&path).unwrap().len() as u64, MAX_TAIL_BYTES);
    }
}
