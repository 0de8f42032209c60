//! Tokens that let programs inside a workspace use MCP.

use agentiso_core::names::WorkspaceRef;
use agentiso_http::{Token, TokenHash};

use super::Session;
use crate::error::{McpBridgeError, OpError};

/// Prefix of every token of a workspace.
const PREFIX: &str = "mcp-";

/// Address and token with which programs inside a workspace reach MCP.
#[derive(Clone, Debug)]
pub struct BridgeAccess {
    pub url: String,
    /// Given to the client once; only its hash is kept.
    pub token: Token,
}

impl Session {
    /// Gives a workspace a new token, which replaces the one it had.
    pub async fn grant_bridge(&self, wanted: &WorkspaceRef) -> Result<BridgeAccess, OpError> {
        let bridge = self.shared().mcp_bridge.as_ref().ok_or(McpBridgeError::Disabled)?;
        let token = Token::random(PREFIX).map_err(McpBridgeError::from)?;
        self.set_bridge_token(wanted, Some(token.hash())).await?;
        Ok(BridgeAccess { url: bridge.url(), token })
    }

    /// Revokes a workspace's token. Sessions that were opened with it end.
    pub async fn revoke_bridge(&self, wanted: &WorkspaceRef) -> Result<(), OpError> {
        self.set_bridge_token(wanted, None).await
    }

    pub(crate) fn refuse_without_bridge(&self) -> Result<(), OpError> {
        match &self.shared().mcp_bridge {
            Some(_) => Ok(()),
            None => Err(McpBridgeError::Disabled.into()),
        }
    }

    async fn set_bridge_token(&self, wanted: &WorkspaceRef, hash: Option<TokenHash>) -> Result<(), OpError> {
        let _call = self.begin_call();
        self.0.kind.refuse_inside()?;
        let id = self.owned(wanted)?.id;
        self.shared().update(&id, |workspace| workspace.bridge_token = hash);
        if let Some(bridge) = &self.shared().mcp_bridge {
            bridge.forget(&id);
        }
        self.shared().save().await.map_err(OpError::Ledger)
    }
}
