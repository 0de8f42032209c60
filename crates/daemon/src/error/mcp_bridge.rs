//! Reasons why the MCP bridge refuses a session from inside a workspace, or a request about one.

use agentiso_http::TokenError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum McpBridgeError {
    #[error("the MCP bridge is not enabled (mcp_bridge.enabled = false)")]
    Disabled,
    #[error("this session can use only the workspace it comes from, not {wanted:?}")]
    Elsewhere { wanted: String },
    #[error("a session from inside a workspace may not create, adopt or destroy workspaces")]
    NotFromInside,
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl McpBridgeError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Disabled => "bridge_disabled",
            // The code hides whether the other workspace exists: sessions inside must not learn about the outside.
            Self::Elsewhere { .. } => "workspace_not_found",
            Self::NotFromInside => "not_allowed",
            Self::Token(_) => "internal",
        }
    }
}
