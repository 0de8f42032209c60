//! What the daemon hands its MCP connections to.

use agentiso_daemon::{McpHandler, McpOptions, Session, SessionKind};
use futures::future::BoxFuture;
use rmcp::service::serve_server;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::profile::Profile;
use crate::server::Server;
use crate::transport::{LineTransport, MAX_LINE};

/// Serves MCP on the daemon's connections.
#[derive(Clone, Debug)]
pub struct Mcp {
    default_tools: String,
}

impl Mcp {
    /// `default_tools` is what a client gets that does not choose: `[server] tools` of the configuration.
    pub fn new(default_tools: impl Into<String>) -> Self {
        Self { default_tools: default_tools.into() }
    }
}

impl McpHandler for Mcp {
    fn serve(&self, session: Session, options: McpOptions, stream: UnixStream) -> BoxFuture<'static, ()> {
        let tools = options.tools.unwrap_or_else(|| self.default_tools.clone());
        Box::pin(serve(session, tools, options.read_only, stream))
    }
}

async fn serve(session: Session, tools: String, read_only: bool, stream: UnixStream) {
    let closed = CancellationToken::new();
    // Whatever ends this future ends what still runs for the client.
    let _guard = closed.clone().drop_guard();
    let (read, write) = stream.into_split();
    let transport = LineTransport::new(read, write, MAX_LINE, closed.clone());
    let chosen = match session.kind() {
        SessionKind::Client | SessionKind::Shell => Profile::parse(&tools, read_only),
        SessionKind::Bound(_) => Ok(Profile::inside()),
    };
    let profile = match chosen {
        Ok(profile) => profile,
        Err(error) => {
            tracing::warn!(%error, "a client asked for tools that do not exist");
            return transport.refuse_all(&error.to_string()).await;
        }
    };
    match serve_server(Server::new(session, profile, closed), transport).await {
        Ok(running) => {
            if let Err(error) = running.waiting().await {
                tracing::warn!(%error, "a session ended in disorder");
            }
        }
        Err(error) => tracing::debug!(%error, "a client left before it said hello"),
    }
}
