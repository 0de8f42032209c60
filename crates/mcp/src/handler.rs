//! The MCP handler that the daemon passes its MCP connections to.

use agentiso_daemon::{McpHandler, McpOptions, Session, SessionKind};
use futures::future::BoxFuture;
use rmcp::service::serve_server;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio_util::sync::CancellationToken;

use crate::offer::Offer;
use crate::profile::Profile;
use crate::server::Server;
use crate::session_offer::SessionOffer;
use crate::transport::{LineTransport, MAX_LINE};

/// Serves MCP on the daemon's connections.
#[derive(Clone, Debug)]
pub struct Mcp {
    default_tools: String,
}

impl Mcp {
    /// `default_tools` applies to clients that choose none: `[server] tools` of the configuration.
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
    let chosen = match session.kind() {
        SessionKind::Client | SessionKind::Shell => Profile::parse(&tools, read_only),
        SessionKind::Bound(_) => Ok(Profile::inside()),
    };
    match chosen {
        Ok(profile) => serve_offer(SessionOffer::new(session, profile), stream).await,
        Err(error) => {
            tracing::warn!(%error, "a client asked for tools that do not exist");
            transport(stream, CancellationToken::new()).refuse_all(&error.to_string()).await;
        }
    }
}

fn transport(stream: UnixStream, closed: CancellationToken) -> LineTransport<OwnedReadHalf> {
    let (read, write) = stream.into_split();
    LineTransport::new(read, write, MAX_LINE, closed)
}

/// Serves any offer on one connection, to its end.
pub async fn serve_offer(offer: impl Offer, stream: UnixStream) {
    let closed = CancellationToken::new();
    // However this future ends, work that still runs for the client ends with it.
    let _guard = closed.clone().drop_guard();
    let transport = transport(stream, closed.clone());
    match serve_server(Server::new(offer, closed), transport).await {
        Ok(running) => {
            if let Err(error) = running.waiting().await {
                tracing::warn!(%error, "a session ended with an error");
            }
        }
        Err(error) => tracing::debug!(%error, "a client disconnected before the handshake"),
    }
}
