//! The backend behind the HTTP front of one workspace: it checks the token and opens an MCP session.

use std::sync::{Arc, Weak};

use agentiso_core::ids::WorkspaceId;
use agentiso_http::Backend;
use futures::future::BoxFuture;
use tokio::net::UnixStream;

use crate::mcp::{McpHandler, McpOptions};
use crate::registry::SessionKind;
use crate::session::Session;
use crate::shared::Shared;

pub(super) struct WorkspaceBackend {
    shared: Weak<Shared>,
    workspace: WorkspaceId,
    mcp: Arc<dyn McpHandler>,
}

impl WorkspaceBackend {
    pub(super) fn new(shared: Weak<Shared>, workspace: WorkspaceId, mcp: Arc<dyn McpHandler>) -> Self {
        Self { shared, workspace, mcp }
    }
}

impl std::fmt::Debug for WorkspaceBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WorkspaceBackend").field(&self.workspace).finish()
    }
}

impl Backend for WorkspaceBackend {
    /// Accepts this workspace's own token only.
    fn knows(&self, token: &str) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let state = shared.state();
        let kept = state.registry.get(&self.workspace).and_then(|workspace| workspace.bridge_token);
        kept.is_some_and(|hash| hash.is_of(token))
    }

    fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>> {
        Box::pin(async {
            let shared = self.shared.upgrade().ok_or("the daemon has ended")?;
            let (ours, theirs) =
                UnixStream::pair().map_err(|error| format!("cannot open a session: {error}"))?;
            let session = Session::open(shared.clone(), SessionKind::Bound(self.workspace));
            tracing::info!(session = %session.id(), workspace = %self.workspace, "a session was opened from inside a workspace");
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
