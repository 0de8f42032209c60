//! Parameters and hints that several tools share.

use agentiso_core::paths::GuestPath;
use agentiso_daemon::OpError;

use crate::answer::Failure;
use crate::args::{GuestFile, Workspace};

/// The largest file that is read or written in one call, from the tool contract.
pub(crate) const MAX_FILE: u64 = 32 * 1024 * 1024;

/// The kernel limits a single argument, such as the text after `sh -c`, to 32 pages.
pub(super) const MAX_COMMAND: usize = 128 * 1024 - 1;

pub(super) const WORKSPACE: Workspace = Workspace::new("workspace_id", "Its name or UUID.");

pub(super) const PATH: GuestFile = GuestFile::new("path", "Absolute path.");

/// A failure of a file tool: it names the path, and has a hint for refusals of the guest.
pub(crate) fn file_failure(error: OpError, path: &GuestPath) -> Failure {
    let mut failure = Failure::from(error);
    if !failure.message.contains(path.as_str()) {
        failure.message.push_str(&format!(" ({path})"));
    }
    if failure.hint.is_some() {
        return failure;
    }
    match failure.code {
        "not_found" => failure.with_hint("list the directory with `file_list`"),
        "is_directory" => failure.with_hint("use `file_list` for a directory"),
        "not_directory" => failure.with_hint("use `file_read` for a file"),
        "no_match" => failure.with_hint(
            "read the file with `file_read`; old_string must match exactly, white space and line endings included",
        ),
        "not_empty" => failure.with_hint("choose a path that does not exist or is an empty directory"),
        "no_space" => failure.with_hint("delete files in the workspace, or create one with a larger disk_gb"),
        "too_large" => failure.with_hint("use `exec` with sed, head or split for very large files"),
        _ => failure,
    }
}
