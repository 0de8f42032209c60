//! Workspaces that are there for one call: those that it goes on with are kept, the others go with it.

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceRef;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::error::OpError;
use crate::info::WorkspaceInfo;
use crate::registry::{Lifetime, Registry};

impl Session {
    /// From now on they are there until somebody destroys them. On an error they are as they were: a call that nobody
    /// waits for any more keeps nothing, and what the ledger does not say would be gone after the next start.
    pub(super) async fn keep(&self, made: &[WorkspaceId], stop: &CancellationToken) -> Result<(), OpError> {
        self.shared().change(|registry| {
            // Under the lock that a shutdown decides under what to destroy, and it does not before this is cancelled.
            if stop.is_cancelled() {
                return Err(OpError::Cancelled);
            }
            set_lifetime(registry, made, Lifetime::Lasting);
            Ok(())
        })?;
        if let Err(error) = self.shared().save().await {
            self.shared().change(|registry| set_lifetime(registry, made, Lifetime::OneCall));
            return Err(OpError::Ledger(error));
        }
        Ok(())
    }

    /// Destroys what nobody will be told of; true if it is gone.
    pub(super) async fn give_up(&self, workspace: &WorkspaceInfo) -> bool {
        match self.destroy(&WorkspaceRef::Id(workspace.id)).await {
            // Somebody else was faster.
            Ok(_) | Err(OpError::NotFound { .. }) => true,
            // The shutdown does it.
            Err(OpError::ShuttingDown) => false,
            Err(error) => {
                tracing::warn!(workspace = %workspace.name, %error, "a workspace that is not needed could not be destroyed");
                self.disown(workspace.id).await;
                false
            }
        }
    }

    /// What is left of a workspace that nobody asked to keep is nobody's, and counts for nobody. It is shown until
    /// somebody destroys it, or the next daemon does.
    async fn disown(&self, id: WorkspaceId) {
        self.shared().change(|registry| {
            registry.update(&id, |workspace| workspace.owner = None);
        });
        self.shared().save_or_warn("a workspace that could not be destroyed has no owner").await;
    }
}

fn set_lifetime(registry: &mut Registry, all: &[WorkspaceId], lifetime: Lifetime) {
    for id in all {
        registry.update(id, |workspace| workspace.lifetime = lifetime);
    }
}
