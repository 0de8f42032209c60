//! The configuration in which OpenCode, an agent for the command line, finds MCP servers.

use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::error::OpError;
use crate::guest::Guest;
use crate::machines::WriteFile;
use crate::session::BridgeAccess;

const PATH: &str = "/root/.config/opencode/config.jsonc";

/// What is longer is none.
const MAX_BYTES: u64 = 1 << 20;

/// Adds this workspace's own server to the configuration, or makes one.
pub(super) async fn configure(guest: &Guest, access: &BridgeAccess) -> Result<(), OpError> {
    let Ok(path) = GuestPath::parse(PATH) else { return Ok(()) };
    let present = guest.read_file(&path, 0, MAX_BYTES).await.map(|file| file.data).unwrap_or_default();
    let text = with_server(&present, access).to_string();
    // A token is in it.
    let file = WriteFile { path, mode: Some(0o600), create_parents: true };
    guest.write_file(file, Bytes::from(text)).await
}

/// Keeps what the image says about providers and models. A file with comments cannot be kept and is replaced.
fn with_server(present: &[u8], access: &BridgeAccess) -> Value {
    let mut config: Map<String, Value> = serde_json::from_slice(present).unwrap_or_default();
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
    fn the_server_is_added_to_what_the_image_says() {
        let token = Token::random("mcp-").unwrap();
        let access = BridgeAccess { url: "http://10.42.0.1:3100/mcp".to_owned(), token: token.clone() };
        let present = br#"{"model": "m", "mcpServers": {"other": {}, "agentiso": {"url": "old"}}}"#;
        let config = with_server(present, &access);
        assert_eq!((&config["model"], &config["mcpServers"]["other"]), (&json!("m"), &json!({})));
        let server = &config["mcpServers"]["agentiso"];
        assert_eq!((&server["type"], &server["url"]), (&json!("http"), &json!("http://10.42.0.1:3100/mcp")));
        assert_eq!(server["headers"]["Authorization"], format!("Bearer {}", token.expose()));
        for none in [&b""[..], b"// {}", b"[]", b"{\"mcpServers\": 5}"] {
            assert_eq!(with_server(none, &access)["mcpServers"]["agentiso"], *server);
        }
    }
}
