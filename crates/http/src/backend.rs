//! The MCP server behind a front, as the front sees it: it checks tokens and opens connections.

use futures::future::BoxFuture;
use tokio::net::UnixStream;

pub trait Backend: std::fmt::Debug + Send + Sync + 'static {
    /// Whether the token, as the client wrote it, is valid. Compares in constant time.
    fn knows(&self, token: &str) -> bool;

    /// Opens a new connection to the MCP server: one JSON-RPC object per line, both ways. The error is a sentence for
    /// the client.
    fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>>;
}
