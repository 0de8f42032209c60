//! Network access that a workspace has for the time of one call, beyond its policy.
//!
//! An opening exists only here: the ledger, forks and clients see the policy without it, and after a crash it is
//! gone.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;

use crate::shared::Shared;

/// Dropping it restores the access that the policy allows; flows that are no longer allowed end.
pub(crate) struct Opening {
    shared: Arc<Shared>,
    id: WorkspaceId,
}

impl Opening {
    pub(super) fn new(shared: Arc<Shared>, id: WorkspaceId) -> Self {
        Self { shared, id }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.shared.network.end_opening(&self.id);
    }
}
