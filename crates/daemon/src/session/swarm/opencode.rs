//! Writes the configuration in which OpenCode, a coding agent for the command line, finds MCP servers.

use agentiso_core::config::McpBridgeConfig;
use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::error::OpError;
use crate::session::BridgeAccess;
use crate::session::Guest;
use crate::vms::WriteFile;

const PATH: &str = "/root/.config/opencode/config.jsonc";

/// Larger files are ignored.
const MAX_BYTES: u64 = 1 << 20;

/// Default models, if neither the image nor the configuration names one: with the host's model server, and without.
const LOCAL_MODEL: &str = "qwen2.5-coder";
const REMOTE_MODEL: &str = "claude-sonnet-4-5";

/// Provider and model for OpenCode, unless the image sets its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelChoice {
    provider: &'static str,
    model: String,
    base_url: Option<String>,
}

impl ModelChoice {
    /// Selects the host's model server, if workspaces may reach one.
    pub(super) fn of(bridge: &McpBridgeConfig) -> Self {
        let (provider, model) = match bridge.ollama_port {
            Some(_) => ("ollama", LOCAL_MODEL),
            None => ("anthropic", REMOTE_MODEL),
        };
        Self {
            provider,
            model: bridge.model.clone().unwrap_or_else(|| model.to_owned()),
            base_url: bridge.ollama_port.map(|port| format!("http://{}:{port}/v1", bridge.bind_addr)),
        }
    }
}

/// Adds the MCP server of this workspace to the configuration, or creates one.
pub(super) async fn configure(
    guest: &Guest,
    access: &BridgeAccess,
    choice: &ModelChoice,
) -> Result<(), OpError> {
    let Ok(path) = GuestPath::parse(PATH) else { return Ok(()) };
    let present = guest.read_file(&path, 0, MAX_BYTES).await.map(|file| file.data).unwrap_or_default();
    let text = with_server(&present, access, choice).to_string();
    // Not readable for others, because it contains a token.
    let file = WriteFile { path, mode: Some(0o600), create_parents: true };
    guest.write_file(file, Bytes::from(text)).await
}

/// Keeps the providers and models that the image sets. A file with comments cannot be parsed and is replaced.
fn with_server(present: &[u8], access: &BridgeAccess, choice: &ModelChoice) -> Value {
    let mut config: Map<String, Value> = serde_json::from_slice(present).unwrap_or_default();
    // A base URL belongs to one provider: that of another provider is left unchanged.
    let is_ours = *config.entry("provider").or_insert_with(|| choice.provider.into()) == choice.provider;
    if let Some(base_url) = choice.base_url.as_ref().filter(|_| is_ours) {
        config.entry("baseURL").or_insert_with(|| base_url.as_str().into());
    }
    config.entry("model").or_insert_with(|| choice.model.as_str().into());
    let server = json!({
        "type": "http",
        "url": access.url,
        "headers": { "Authorization": format!("Bearer {}", access.token.expose()) },
    });
    match config.get_mut("mcpServers").and_then(Value::as_object_mut) {
        Some(servers) => drop(servers.insert("agentiso".to_owned(), server)),
        None => drop(config.insert("mcpServers".to_owned(), json!({ "agentiso": server }))),
    }
    Value::Object(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_http::Token;

    #[test]
    fn opencode_config_gains_the_agentiso_server() {
        let token = Token::random("mcp-").unwrap();
        let access = BridgeAccess { url: "http://10.42.0.1:3100/mcp".to_owned(), token: token.clone() };
        let present = br#"{"model": "m", "mcpServers": {"other": {}, "agentiso": {"url": "old"}}}"#;
        let choice = ModelChoice::of(&McpBridgeConfig::default());
        let config = with_server(present, &access, &choice);
        assert_eq!((&config["model"], &config["mcpServers"]["other"]), (&json!("m"), &json!({})));
        let server = &config["mcpServers"]["agentiso"];
        assert_eq!((&server["type"], &server["url"]), (&json!("http"), &json!("http://10.42.0.1:3100/mcp")));
        assert_eq!(server["headers"]["Authorization"], format!("Bearer {}", token.expose()));
        for none in [&b""[..], b"// {}", b"[]", b"{\"mcpServers\": 5}"] {
            assert_eq!(with_server(none, &access, &choice)["mcpServers"]["agentiso"], *server);
        }
    }

    #[test]
    fn image_provider_and_model_override_defaults() {
        let token = Token::random("mcp-").unwrap();
        let access = BridgeAccess { url: "http://10.42.0.1:3100/mcp".to_owned(), token };
        let says = |present: &str, bridge: &McpBridgeConfig| {
            let config = with_server(present.as_bytes(), &access, &ModelChoice::of(bridge));
            [config["provider"].clone(), config["model"].clone(), config["baseURL"].clone()]
        };
        let remote = McpBridgeConfig::default();
        let local = McpBridgeConfig { ollama_port: Some(11434), ..McpBridgeConfig::default() };
        let chosen = McpBridgeConfig { model: Some("m".to_owned()), ..local.clone() };
        let here = json!("http://10.42.0.1:11434/v1");
        assert_eq!(says("{}", &remote), [json!("anthropic"), json!(REMOTE_MODEL), json!(null)]);
        assert_eq!(says("{}", &local), [json!("ollama"), json!(LOCAL_MODEL), here.clone()]);
        assert_eq!(says("{}", &chosen), [json!("ollama"), json!("m"), here]);
        let image = r#"{"provider": "openai", "model": "gpt"}"#;
        assert_eq!(says(image, &local), [json!("openai"), json!("gpt"), json!(null)]);
        let image = r#"{"provider": "ollama", "baseURL": "http://x"}"#;
        assert_eq!(says(image, &local), [json!("ollama"), json!(LOCAL_MODEL), json!("http://x")]);
    }
}
