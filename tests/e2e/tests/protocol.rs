//! MCP itself: handshake, tool list, answers.

use agentiso_testkit::{HostOptions, host_or_skip};
use serde_json::{Value, json};

/// The tools of the contract that this version has.
const TOOLS: [&str; 31] = [
    "exec",
    "exec_background",
    "exec_parallel",
    "file_edit",
    "file_list",
    "file_read",
    "file_transfer",
    "file_write",
    "git_clone",
    "git_commit",
    "git_diff",
    "git_push",
    "git_status",
    "network_policy",
    "port_forward",
    "set_env",
    "snapshot",
    "swarm_run",
    "team",
    "vault",
    "workspace_adopt",
    "workspace_create",
    "workspace_destroy",
    "workspace_fork",
    "workspace_info",
    "workspace_list",
    "workspace_logs",
    "workspace_merge",
    "workspace_prepare",
    "workspace_start",
    "workspace_stop",
];

#[test]
fn oldest_handshake_is_accepted_and_names_agentiso() {
    let host = host_or_skip!();
    let client = host.raw_client(&[]);
    let hello = client.initialize();
    assert_eq!(hello["protocolVersion"], "2024-11-05");
    assert_eq!(hello["serverInfo"]["name"], "agentiso");
    assert!(hello["instructions"].as_str().unwrap().len() < 2048);
    assert!(hello["capabilities"]["tools"].is_object());
    assert_eq!(hello["capabilities"]["resources"], json!({"subscribe": true}));
    assert!(hello["capabilities"].get("logging").is_none(), "nothing is declared that is not there");
}

#[test]
fn logging_never_reaches_standard_output() {
    for (filter, lines) in [("off", false), ("debug", true)] {
        let environment = vec![("RUST_LOG".to_owned(), filter.to_owned())];
        let host = host_or_skip!(HostOptions { environment, ..HostOptions::default() });
        let client = host.client();
        client.tool("workspace_list", json!({}));
        assert_eq!(client.unsolicited(), Vec::<Value>::new(), "{filter}");
        host.stop_daemon();
        let log = std::fs::read_to_string(host.data().join("daemon.log")).unwrap_or_default();
        assert_eq!(log.contains("INFO") || log.contains("DEBUG"), lines, "{filter}: {log}");
    }
}

#[test]
fn tool_list_is_complete_annotated_and_stable() {
    let host = host_or_skip!();
    let client = host.client();
    // Without params, as some clients send it.
    client.send(&json!({"jsonrpc": "2.0", "id": 900_000, "method": "tools/list"}));
    let list = client.request("tools/list", json!({})).result();
    let mut names: Vec<_> =
        list["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, TOOLS);
    for tool in list["tools"].as_array().unwrap() {
        let hints = &tool["annotations"];
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(hints[hint].is_boolean(), "{}: no {hint}", tool["name"]);
        }
        assert!(tool["description"].as_str().unwrap().len() > 40, "{}", tool["name"]);
        for (name, property) in tool["inputSchema"]["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{}: {name} is not described", tool["name"]);
        }
    }
    let other = host.client().request("tools/list", json!({})).result();
    assert_eq!(other.to_string(), list.to_string());
    let early = client.unsolicited();
    assert_eq!(early[0]["id"], 900_000);
    assert_eq!(early[0]["result"]["tools"].as_array().unwrap().len(), TOOLS.len());
}

#[test]
fn text_and_structured_content_each_suffice() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let info = ws.tool("workspace_info", json!({}));
    assert_eq!(info.json(), info.structured);
    let out = ws.tool("exec", json!({"command": "echo hi"}));
    assert_eq!(out.json(), out.structured);
    let read = ws.tool("file_read", json!({"path": "/etc/hostname"}));
    assert!(read.structured.to_string().contains(read.text.trim()));
    let error = client.tool_error("workspace_info", json!({"workspace_id": "nobody"}));
    for key in ["code", "message", "hint", "retryable"] {
        assert!(error.structured.get(key).is_some(), "{key} is missing in {}", error.structured);
    }
    assert!(error.text.contains(error.structured["message"].as_str().unwrap()));
}

#[test]
fn profiles_select_the_listed_tools() {
    let host = host_or_skip!();
    let client = host.raw_client(&["--tools", "core"]);
    client.initialize();
    let list = client.request("tools/list", json!({})).result();
    let names: Vec<_> =
        list["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"exec") && !names.contains(&"workspace_info"), "{names:?}");
    let ws = client.workspace();
    let out = client.tool("exec", json!({"command": "echo alone"})).json();
    assert_eq!(out["stdout"], "alone\n", "the only workspace need not be named");
    assert_eq!(ws.tool("workspace_exec", json!({"command": "echo old"})).json()["stdout"], "old\n");

    let reader = host.raw_client(&["--read-only"]);
    reader.initialize();
    let list = reader.request("tools/list", json!({})).result();
    for tool in list["tools"].as_array().unwrap() {
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{}", tool["name"]);
    }
    let refused = reader.request("tools/call", json!({"name": "workspace_create", "arguments": {}})).wait();
    assert!(matches!(refused, agentiso_testkit::RpcReply::Error { code: -32602, .. }), "{refused:?}");
}
