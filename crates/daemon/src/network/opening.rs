//! Network access that a workspace has for the time of one call, beyond its policy.
//!
//! An opening exists only here: the ledger, forks and clients see the policy without it, and after a crash it is
//! gone.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;

use super::Network;

/// Dropping it restores the access that the policy allows; flows that are no longer allowed end.
pub(crate) struct Opening {
    network: Arc<Network>,
    id: WorkspaceId,
}

impl Opening {
    pub(super) fn new(network: Arc<Network>, id: WorkspaceId) -> Self {
        Self { network, id }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.network.end_opening(&self.id);
    }
}
