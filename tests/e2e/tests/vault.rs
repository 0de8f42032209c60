//! Notes on the host: through MCP, the CLI, and manual edits in between. No VM is needed.

use std::path::PathBuf;

use agentiso_testkit::{HostOptions, TestHost, host_or_skip};
use serde_json::json;

/// Options for a host whose vault is this directory.
fn options(notes: &tempfile::TempDir) -> HostOptions {
    let config = format!("[vault]\nenabled = true\npath = \"{}\"\n", notes.path().display());
    HostOptions { config, ..HostOptions::default() }
}

fn notes() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn notes_outlive_sessions_and_daemons() {
    let notes = notes();
    let host: TestHost = host_or_skip!(options(&notes));
    let file = |path: &str| -> PathBuf { notes.path().join(path) };
    let first = host.client();
    first.tool("vault", json!({"action": "write", "path": "plans/a.md", "content": "# Plan\nbuild it\n"}));
    first.tool("vault", json!({"action": "tags", "path": "plans/a.md", "tags_action": "add", "tag": "web"}));
    first.hang_up();
    host.stop_daemon();

    let text = std::fs::read_to_string(file("plans/a.md")).unwrap();
    std::fs::write(file("plans/a.md"), format!("{text}by hand\n")).unwrap();
    let next = host.client();
    let append = json!({"action": "write", "path": "plans/a.md", "content": "and on\n", "mode": "append"});
    next.tool("vault", append);
    let read = next.tool("vault", json!({"action": "read", "path": "plans/a.md"}));
    assert!(read.text.ends_with("# Plan\nbuild it\nby hand\nand on\n"), "{}", read.text);
    let found =
        next.tool("vault", json!({"action": "search", "query": "by hand", "path": "plans", "tag": "web"}));
    assert_eq!(found.json()["results"][0]["path"], "plans/a.md");

    assert!(host.cli_ok(&["vault", "ls", "-r"]).contains("plans/a.md"));
    assert_eq!(host.cli_ok(&["vault", "read", "plans/a.md"]), read.text);
    let json: serde_json::Value =
        serde_json::from_str(&host.cli_ok(&["vault", "search", "by hand", "--json"])).unwrap();
    assert_eq!(json[0]["path"], "plans/a.md");
    assert_eq!(host.cli(&["vault", "search", "nowhere to be found"]).status.code(), Some(1));
    assert_eq!(host.cli(&["vault", "read", "../../etc/passwd"]).status.code(), Some(2));
    next.tool_error("vault", json!({"action": "read", "path": "plans/b.md"}))
        .mentions(&["plans/b.md", "list"]);
}

#[test]
fn concurrent_writes_to_a_note_lose_nothing() {
    let notes = notes();
    let host: TestHost = host_or_skip!(options(&notes));
    let clients = [host.client(), host.client()];
    let mut pending = Vec::new();
    for round in 0..20 {
        for (who, client) in clients.iter().enumerate() {
            let arguments = match round % 2 {
                0 => {
                    json!({"action": "write", "path": "n.md", "content": format!("line {who} {round}\n"), "mode": "append"})
                }
                _ => {
                    json!({"action": "write", "path": "n.md", "content": format!("line {who} {round}\n"), "mode": "prepend"})
                }
            };
            pending.push(client.start_tool("vault", arguments));
        }
    }
    for answer in pending {
        let answer = answer.tool();
        assert!(!answer.is_error, "{}", answer.text);
    }
    let text = clients[0].tool("vault", json!({"action": "read", "path": "n.md"})).text;
    assert_eq!(text.lines().collect::<std::collections::HashSet<_>>().len(), 40, "{text}");
    assert_eq!(std::fs::read_dir(notes.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn disabled_or_missing_vault_names_the_setting() {
    let host = host_or_skip!();
    let client = host.client();
    let error = client.tool_error("vault", json!({"action": "list"}));
    assert_eq!(error.mentions(&["vault.enabled"]).code(), "vault_disabled");
    assert!(String::from_utf8_lossy(&host.cli(&["vault", "ls"]).stderr).contains("vault.enabled"));

    let notes = notes();
    let missing: TestHost = host_or_skip!(options(&notes));
    drop(notes);
    let error = missing.client().tool_error("vault", json!({"action": "list"}));
    assert_eq!(error.mentions(&["vault.path"]).code(), "vault_unavailable");
}
