//! Waits for a change of one workspace.

use agentiso_core::names::WorkspaceRef;
use tokio::sync::watch;

use super::Session;
use crate::info::WorkspaceInfo;

/// One workspace as its owner sees it, over time. Watching is not a call: a session that only watches counts as idle.
#[derive(Debug)]
pub struct Watch {
    session: Session,
    wanted: WorkspaceRef,
    changes: watch::Receiver<()>,
    seen: Option<WorkspaceInfo>,
}

impl Session {
    /// Starts watching a workspace. It need not exist or belong to this session yet, and may appear and vanish.
    pub fn watch(&self, wanted: &WorkspaceRef) -> Watch {
        // Subscribe before the first look, so that no change between the two is missed.
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
    /// Returns when the workspace differs from how it was seen last: another state, VM, policy or list of snapshots,
    /// gone, or owned by another session. Changes in quick succession count as one. The future may be dropped and
    /// `changed` called again.
    pub async fn changed(&mut self) {
        while self.changes.changed().await.is_ok() {
            let seen = self.session.look(&self.wanted);
            if seen != self.seen {
                self.seen = seen;
                return;
            }
        }
        // Unreachable in practice: the sender lives as long as the session.
        std::future::pending().await
    }
}
