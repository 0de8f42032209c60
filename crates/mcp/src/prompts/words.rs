//! What prompts share: their parameters, and how they speak of tools that go by several names.

use agentiso_core::names::WorkspaceRef;

use crate::args::{Snapshot, Text, Workspace};
use crate::profile::Profile;

/// The longest free text: a task with its background, not a book.
const MAX_TEXT: usize = 16 * 1024;

pub(super) const WORKSPACE: Workspace =
    Workspace { name: "workspace", about: "Workspace to work in. Default: a new one." };
pub(super) const SNAPSHOT: Snapshot =
    Snapshot { name: "snapshot", about: "Snapshot of it to begin with. Default: one that is taken first." };

/// A free text.
pub(super) const fn text(name: &'static str, about: &'static str) -> Text {
    Text { name, about, min: 1, max: MAX_TEXT, nul: false }
}

/// The tools of a session, in words.
pub(crate) struct Words<'a>(pub(super) &'a Profile);

impl Words<'_> {
    pub(super) fn has_snapshots(&self) -> bool {
        let single = self.0.offers("snapshot_create") && self.0.offers("snapshot_restore");
        self.0.offers("snapshot") || single
    }

    pub(super) fn snapshot_create(&self) -> &'static str {
        if self.0.offers("snapshot") { "snapshot with action create" } else { "snapshot_create" }
    }

    pub(super) fn snapshot_restore(&self) -> &'static str {
        if self.0.offers("snapshot") { "snapshot with action restore" } else { "snapshot_restore" }
    }

    /// A sentence about the end of a machine that nobody needs any more, where there is a tool for it.
    pub(super) fn destroy(&self, what: &str) -> String {
        match self.0.offers("workspace_destroy") {
            true => format!(" Destroy {what} with workspace_destroy."),
            false => String::new(),
        }
    }

    /// How commands run in several machines at once.
    pub(super) fn in_parallel(&self) -> &'static str {
        match self.0.offers("exec_parallel") {
            true => "in one call of exec_parallel where commands are known beforehand",
            false => "with several calls of exec at once",
        }
    }

    /// Where the work is done.
    pub(super) fn place(&self, workspace: Option<&WorkspaceRef>) -> String {
        match workspace {
            Some(workspace) => format!("Work in the workspace \"{workspace}\"."),
            None => "Make a workspace with workspace_create and work in it.".to_owned(),
        }
    }
}
