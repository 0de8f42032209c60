//! The operations of the git tools: each makes a [`Script`](crate::Script) and parses its output.

mod clone;
mod commit;
mod diff;
mod push;

use std::time::Duration;

use agentiso_core::paths::GuestPath;

use crate::script::Script;

pub use clone::{Before, CLONE_TIMEOUT, CloneRepo, Cloned};
pub use commit::{Author, AuthorError, Commit, Committed};
pub use diff::{Diff, Diffed};
pub use push::{Push, Pushed};

/// Longer than reading a large working tree takes.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Enough for a list of some thousand files.
const MAX_STATUS: u64 = 512 * 1024;

/// The script for `git status`; [`Status::parse`](crate::Status::parse) reads its output.
pub fn status(path: &GuestPath) -> Script {
    Script::new(&[include_str!("../scripts/status.sh")], READ_TIMEOUT).arg(path.as_str()).keeping(MAX_STATUS)
}

/// Removes the locks that a killed git left in a repository.
fn unlock(path: &GuestPath) -> Script {
    Script::new(&[include_str!("../scripts/unlock.sh")], READ_TIMEOUT).arg(path.as_str())
}
