//! The interface to the MCP server: this crate knows connections and sessions, and `agentiso-mcp` knows the
//! protocol.

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use crate::session::Session;

/// Options of an MCP client, fixed at connect for the life of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpOptions {
    /// `full`, `core`, or a list of tool names; `None`: as the daemon's configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    #[serde(default)]
    pub read_only: bool,
}

pub trait McpHandler: Send + Sync + 'static {
    /// Speaks newline-delimited JSON-RPC on the stream until it ends. Dropping the future ends the conversation and
    /// the calls under way.
    fn serve(&self, session: Session, options: McpOptions, stream: UnixStream) -> BoxFuture<'static, ()>;
}
