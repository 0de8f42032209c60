//! What sessions from inside workspaces cannot do, and what cannot be done for them.

use agentiso_http::TokenError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum McpBridgeError {
    #[error("the MCP bridge is not enabled on this server")]
    Disabled,
    #[error("this session speaks for the workspace it comes from, and {wanted:?} is another or none")]
    Elsewhere { wanted: String },
    #[error("a session from inside a workspace may not make, take or destroy workspaces")]
    NotFromInside,
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl McpBridgeError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Disabled => "bridge_disabled",
            // As if there were no other: what there is outside is nothing to those inside.
            Self::Elsewhere { .. } => "workspace_not_found",
            Self::NotFromInside => "not_allowed",
            Self::Token(_) => "internal",
        }
    }

    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Disabled => {
                "set mcp_bridge.enabled = true in the server's configuration, or leave mcp_bridge out"
            }
            Self::Elsewhere { .. } => "leave workspace_id out: it is always this workspace",
            Self::NotFromInside => "whoever made this workspace can do it",
            Self::Token(_) => "the server's log has the details",
        }
    }
}
