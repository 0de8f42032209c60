//! Workspaces that exist for one call: those that the call decides to keep become lasting, the others are destroyed
//! with it.

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceRef;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::error::OpError;
use crate::info::WorkspaceInfo;
use crate::registry::{Lifetime, Registry};

impl Session {
    /// Makes workspaces lasting: they stay until they are destroyed. On an error their lifetime is unchanged: a
    /// cancelled call keeps nothing, and a workspace that the ledger does not list as lasting would be destroyed at the
    /// next start.
    pub(super) async fn keep(&self, made: &[WorkspaceId], stop: &CancellationToken) -> Result<(), OpError> {
        self.shared().change(|registry| {
            // Checked under the registry's lock. A shutdown decides under the same lock which workspaces to destroy,
            // and only after it has cancelled this token.
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

    /// Destroys a workspace that no client will be told of; true if it is gone.
    pub(super) async fn destroy_unkept(&self, workspace: &WorkspaceInfo) -> bool {
        match self.destroy(&WorkspaceRef::Id(workspace.id)).await {
            // Another call destroyed it first.
            Ok(_) | Err(OpError::NotFound { .. }) => true,
            // The shutdown destroys it.
            Err(OpError::ShuttingDown) => false,
            Err(error) => {
                tracing::warn!(workspace = %workspace.name, %error, "cannot destroy a workspace that is no longer needed");
                self.disown(workspace.id).await;
                false
            }
        }
    }

    /// Removes the owner of a workspace that could not be destroyed, so that it counts against no quota. It is listed
    /// until a client or the next daemon destroys it.
    async fn disown(&self, id: WorkspaceId) {
        self.shared().update(&id, |workspace| workspace.owner = None);
        self.shared().save_or_warn("a workspace that could not be destroyed has no owner").await;
    }
}

fn set_lifetime(registry: &mut Registry, all: &[WorkspaceId], lifetime: Lifetime) {
    for id in all {
        registry.update(id, |workspace| workspace.lifetime = lifetime);
    }
}
