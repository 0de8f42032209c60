//! What a front stands in front of.

use futures::future::BoxFuture;
use tokio::net::UnixStream;

pub trait Backend: std::fmt::Debug + Send + Sync + 'static {
    /// Whether this token, as the client wrote it, opens the door. Compares in constant time.
    fn knows(&self, token: &str) -> bool;

    /// A fresh conversation with the MCP server: one JSON-RPC object per line, both ways. The error is a sentence for
    /// the client.
    fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>>;
}
