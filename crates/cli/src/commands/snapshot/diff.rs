//! `agentiso snapshot diff`: shows the differences between a workspace and a snapshot.

use std::process::ExitCode;

use agentiso_core::names::SnapshotName;
use agentiso_daemon::{ChangedPath, SnapshotDiff};

use super::parse_name;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::progress::Display;
use crate::{output, runtime};

/// Show what changed in a workspace since a snapshot
///
/// Paths are marked A (added), M (modified) or D (removed).
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  agentiso snapshot diff dev clean
  agentiso snapshot diff dev clean --json | jq .changed_bytes")]
pub(crate) struct Arguments {
    /// Name, id, or the beginning of an id
    workspace: String,
    #[arg(value_parser = parse_name)]
    name: SnapshotName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { workspace, name, json } = arguments;
    let mut display = if *json { Display::silent() } else { Display::start(&format!("snapshot {name}")) };
    let diff = runtime::block_on(async {
        Client::open(context).await?.diff_snapshot(workspace, name, &display).await
    })??;
    display.clear();
    if *json {
        output::json(&diff)?;
    } else {
        output::line(&render(&diff))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(diff: &SnapshotDiff) -> String {
    let bytes = output::size(diff.changed_bytes);
    let Some(paths) = &diff.paths else {
        let reason = diff.paths_unknown.as_deref().unwrap_or("the file systems could not be compared");
        return format!("{bytes} in changed blocks; the changed paths are unknown: {reason}");
    };
    let mut lines = Vec::new();
    let mut list = |mark: char, changed: &[ChangedPath], total: u64| {
        lines.extend(changed.iter().map(|path| line(mark, path)));
        let hidden = total.saturating_sub(changed.len() as u64);
        if hidden > 0 {
            lines.push(format!("{mark} … and {hidden} more"));
        }
    };
    list('A', &paths.added, paths.added_total);
    list('M', &paths.modified, paths.modified_total);
    list('D', &paths.removed, paths.removed_total);
    lines.push(format!(
        "{} added, {} modified, {} removed; {bytes} in changed blocks",
        paths.added_total, paths.modified_total, paths.removed_total
    ));
    lines.join("\n")
}

/// One changed path. The guest chooses its file names, so control characters are escaped to keep it on one line.
fn line(mark: char, changed: &ChangedPath) -> String {
    let path = output::one_line(&changed.path);
    match changed.kind.as_str() {
        "dir" => format!("{mark} {path}/"),
        "file" => format!("{mark} {path} ({})", output::size(changed.size)),
        _ => format!("{mark} {path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_daemon::ChangedPaths;

    fn path(path: &str, kind: &str, size: u64) -> ChangedPath {
        ChangedPath { path: path.to_owned(), kind: kind.to_owned(), size }
    }

    #[test]
    fn changes_are_listed_by_kind_and_counted() {
        let paths = ChangedPaths {
            added: vec![path("/new", "dir", 4096), path("/new/\u{1b}[2J", "file", 5)],
            modified: vec![path("/etc/hosts", "file", 2048)],
            removed: vec![path("/link", "symlink", 7)],
            added_total: 2,
            modified_total: 12,
            removed_total: 1,
        };
        let diff = SnapshotDiff { changed_bytes: 3 << 20, paths: Some(paths), paths_unknown: None };
        let expected = "\
A /new/
A /new/\\u{1b}[2J (5 B)
M /etc/hosts (2.0 KiB)
M … and 11 more
D /link
2 added, 12 modified, 1 removed; 3.0 MiB in changed blocks";
        assert_eq!(render(&diff), expected);
    }

    #[test]
    fn diff_without_paths_gives_the_reason() {
        let diff = SnapshotDiff {
            changed_bytes: 512,
            paths: None,
            paths_unknown: Some("it is not ext4".to_owned()),
        };
        assert_eq!(render(&diff), "512 B in changed blocks; the changed paths are unknown: it is not ext4");
    }
}
