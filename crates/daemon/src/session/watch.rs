//! Waiting for a workspace to become another than it was.

use agentiso_core::names::WorkspaceRef;
use tokio::sync::watch;

use super::Session;
use crate::info::WorkspaceInfo;

/// One workspace as its owner sees it, over time. Watching is not a call: a session that only watches is idle.
#[derive(Debug)]
pub struct Watch {
    session: Session,
    wanted: WorkspaceRef,
    changes: watch::Receiver<()>,
    seen: Option<WorkspaceInfo>,
}

impl Session {
    /// Watches a workspace from now on. It need not exist or be ours yet, and may come and go.
    pub fn watch(&self, wanted: &WorkspaceRef) -> Watch {
        // Before the first look, so that nothing between the two is missed.
        let changes = self.shared().changed.subscribe();
        let seen = self.look(wanted);
        Watch { session: self.clone(), wanted: wanted.clone(), changes, seen }
    }

    fn look(&self, wanted: &WorkspaceRef) -> Option<WorkspaceInfo> {
        let registry = &self.shared().state().registry;
        let workspace = registry.find_owned(wanted, &self.0.id, self.0.kind).ok()?;
        Some(self.view(registry, workspace))
    }
}

impl Watch {
    /// Returns when the workspace is not as it was seen last: another state, machine, policy or list of snapshots, gone, or
    /// somebody else's. Changes that follow each other closely count as one. May be dropped and called again.
    pub async fn changed(&mut self) {
        while self.changes.changed().await.is_ok() {
            let seen = self.session.look(&self.wanted);
            if seen != self.seen {
                self.seen = seen;
                return;
            }
        }
        // What marks changes lives as long as the session does.
        std::future::pending().await
    }
}
