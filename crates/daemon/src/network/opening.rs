//! What a workspace may reach for the time of one call, besides what its policy says.
//!
//! An opening is kept here and nowhere else: the ledger, forks and whoever looks at the workspace see the policy that it
//! has without it, and after a crash there is none.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;

use crate::shared::Shared;

/// Dropped, the workspace is as closed as its policy says, and what is open and no longer allowed ends.
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
