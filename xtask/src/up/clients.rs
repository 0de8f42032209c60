//! Configuration for MCP clients, ready to paste.

use std::path::Path;

pub(super) fn text(binary: &Path) -> String {
    let path = binary.display().to_string();
    // JSON strings and TOML basic strings escape alike what a path can hold.
    let quoted = serde_json::Value::from(path.clone());
    let shell = if path.contains(|c: char| !(c.is_ascii_alphanumeric() || "/._-+".contains(c))) {
        format!("'{}'", path.replace('\'', r"'\''"))
    } else {
        path
    };
    format!(
        r#"Point an MCP client at it:

  Claude Code
    claude mcp add agentiso -- {shell} serve

  OpenCode, in opencode.json
    {{
      "mcp": {{
        "agentiso": {{ "type": "local", "command": [{quoted}, "serve"], "enabled": true }}
      }}
    }}

  Codex, in config.toml
    [mcp_servers.agentiso]
    command = {quoted}
    args = ["serve"]
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_with_spaces_can_be_pasted() {
        let text = text(Path::new("/home/a b/agentiso"));
        assert!(text.contains("-- '/home/a b/agentiso' serve"), "{text}");
        assert!(text.contains(r#"command = "/home/a b/agentiso""#), "{text}");
    }

    #[test]
    fn example_configuration_is_valid_json() {
        let text = text(Path::new("/opt/agentiso"));
        let start = text.find('{').unwrap();
        let end = text.find("  Codex").unwrap();
        let value: serde_json::Value = serde_json::from_str(text[start..end].trim()).unwrap();
        assert_eq!(value["mcp"]["agentiso"]["command"][0], "/opt/agentiso");
    }
}
