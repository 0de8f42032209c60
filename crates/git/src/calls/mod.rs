//! The operations of the git tools: each gives a [`Script`](crate::Script) and reads what it printed.

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

/// A list of some thousand files.
const MAX_STATUS: u64 = 512 * 1024;

/// What git knows of a working tree; [`Status::parse`](crate::Status::parse) reads it.
pub fn status(path: &GuestPath) -> Script {
    Script::new(&[include_str!("../scripts/status.sh")], READ_TIMEOUT).arg(path.as_str()).keeping(MAX_STATUS)
}
