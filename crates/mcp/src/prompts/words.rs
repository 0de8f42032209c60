//! Parameters and phrases that prompts share. Phrases depend on which of several tool names the session has.

use agentiso_core::names::WorkspaceRef;

use crate::args::{Snapshot, Text, Workspace};
use crate::profile::Profile;

/// The longest free text: enough for a task with its background.
const MAX_TEXT: usize = 16 * 1024;

pub(super) const WORKSPACE: Workspace =
    Workspace::new("workspace", "Workspace to work in. Default: a new one.");
pub(super) const SNAPSHOT: Snapshot =
    Snapshot::new("snapshot", "Its snapshot to start from. Default: a new one.");

/// A free text.
pub(super) const fn text(name: &'static str, about: &'static str) -> Text {
    Text { name, about, min: 1, max: MAX_TEXT, nul: false }
}

/// Phrases that name the tools of a session.
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

    /// A sentence about destroying workspaces that are no longer needed, if the session has the tool for it.
    pub(super) fn destroy(&self, what: &str) -> String {
        match self.0.offers("workspace_destroy") {
            true => format!(" Destroy {what} with workspace_destroy."),
            false => String::new(),
        }
    }

    /// A phrase about running commands in several VMs at once.
    pub(super) fn in_parallel(&self) -> &'static str {
        match self.0.offers("exec_parallel") {
            true => "in one call of exec_parallel if you know the commands beforehand",
            false => "with several calls of exec at once",
        }
    }

    /// A sentence about the workspace to work in.
    pub(super) fn place(&self, workspace: Option<&WorkspaceRef>) -> String {
        match workspace {
            Some(workspace) => format!("Work in the workspace \"{workspace}\"."),
            None => "Create a workspace with workspace_create and work in it.".to_owned(),
        }
    }
}
