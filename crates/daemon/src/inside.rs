//! Opens MCP sessions for programs inside workspaces, which reach the daemon through the MCP bridge.

use std::net::Ipv4Addr;
use std::sync::{Arc, Weak};

use agentiso_core::ids::WorkspaceId;
use futures::future::BoxFuture;
use tokio::net::UnixStream;

use crate::mcp::{McpHandler, McpOptions};
use crate::mcp_bridge::Workspaces;
use crate::registry::SessionKind;
use crate::session::Session;
use crate::shared::Shared;

pub(crate) struct Inside {
    pub(crate) shared: Weak<Shared>,
    pub(crate) mcp: Arc<dyn McpHandler>,
}

impl Workspaces for Inside {
    fn at_address(&self, address: Ipv4Addr, enter: &mut dyn FnMut(WorkspaceId, bool)) {
        let Some(shared) = self.shared.upgrade() else { return };
        let state = shared.state();
        if let Some(workspace) = state.registry.at_address(address) {
            enter(workspace.id, workspace.bridge_token.is_some());
        }
    }

    fn accepts(&self, id: &WorkspaceId, token: &str) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let state = shared.state();
        let kept = state.registry.get(id).and_then(|workspace| workspace.bridge_token);
        kept.is_some_and(|hash| hash.is_of(token))
    }

    fn open(&self, id: WorkspaceId) -> BoxFuture<'_, Result<UnixStream, String>> {
        Box::pin(async move {
            let shared = self.shared.upgrade().ok_or("the daemon has ended")?;
            let (ours, theirs) =
                UnixStream::pair().map_err(|error| format!("cannot open a session: {error}"))?;
            let session = Session::open(shared.clone(), SessionKind::Bound(id));
            tracing::info!(session = %session.id(), workspace = %id, "a session was opened from inside a workspace");
            let serving = self.mcp.serve(session, McpOptions::default(), theirs);
            let closing = shared.closing.clone();
            shared.tasks.spawn(async move {
                // The session ends with the connection: when the other end of the pair is dropped.
                closing.run_until_cancelled(serving).await;
            });
            Ok(ours)
        })
    }
}
