//! The daemon's metrics over HTTP, with real VMs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use agentiso_testkit::{Client, TestHost, eventually, host_or_skip};
use serde_json::{Value, json};

/// A client whose `serve` exposes metrics, and their address.
fn watched(host: &TestHost) -> (Client, String) {
    let client = host.raw_client(&["--metrics-port", "0"]);
    client.initialize();
    let address = || {
        let said = client.stderr();
        let (_, rest) = said.split_once("metrics at http://")?;
        Some(rest.split_once("/metrics")?.0.to_owned())
    };
    eventually("the address is told", Duration::from_secs(10), || address().is_some());
    let address = address().unwrap();
    (client, address)
}

/// Sends a GET request and returns the status and body.
fn get(address: &str, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).parse().unwrap()
}

#[test]
fn metrics_count_operations_and_outlive_serve() {
    let host = host_or_skip!();
    let (client, address) = watched(&host);
    client.tool("workspace_create", json!({"name": "target"}));
    let exec = |workspace: &str, command: &str| {
        client.tool("exec", json!({"workspace_id": workspace, "command": command})).json()["exit_code"]
            .clone()
    };
    let commit = "git init -q -b main && git config user.name T && git config user.email t@example.com && \
                  echo 1 > a && git add a && git commit -q -m one";
    assert_eq!(exec("target", &format!("cd /workspace && {commit}")), 0);
    client.tool("snapshot", json!({"workspace_id": "target", "action": "create", "name": "s"}));
    let fork = json!({"workspace_id": "target", "snapshot_name": "s", "new_name": "source"});
    client.tool("workspace_fork", fork);
    assert_eq!(exec("source", "cd /workspace && echo 2 > b && git add b && git commit -q -m two"), 0);
    assert_eq!(exec("source", "exit 3"), 3);
    let merge =
        json!({"source_workspaces": ["source"], "target_workspace": "target", "strategy": "sequential"});
    client.tool("workspace_merge", merge);
    client.tool_error("workspace_info", json!({"workspace_id": "nobody"}));

    let (status, text) = get(&address, "/metrics", &address);
    assert_eq!(status, 200, "{text}");
    assert_eq!(value(&text, "agentiso_workspaces_total{state=\"running\"}"), 2.0);
    assert_eq!(value(&text, "agentiso_vm_boot_duration_seconds_count"), 2.0);
    assert!(value(&text, "agentiso_vm_boot_duration_seconds_sum") > 0.0);
    assert!(value(&text, "agentiso_exec_total{result=\"success\"}") >= 2.0);
    assert!(value(&text, "agentiso_exec_total{result=\"failure\"}") >= 1.0);
    assert_eq!(value(&text, "agentiso_errors_total{error_type=\"workspace_not_found\"}"), 1.0);
    assert_eq!(value(&text, "agentiso_merge_total{strategy=\"sequential\",result=\"success\"}"), 1.0);
    assert_eq!(value(&text, "agentiso_merge_duration_seconds_count"), 1.0);
    let (status, health) = get(&address, "/healthz", "localhost");
    let health: Value = serde_json::from_str(&health).unwrap();
    assert_eq!((status, &health["status"]), (200, &json!("ok")));
    assert_eq!(health["workspaces"], json!({"running": 2, "stopped": 0, "suspended": 0}));
    assert!(health["uptime_seconds"].is_u64());

    // Foreign host names and other paths are refused.
    assert_eq!(get(&address, "/metrics", "evil.example").0, 403);
    assert_eq!(get(&address, "/mcp", "localhost").0, 404);
    let port = address.rsplit_once(':').unwrap().1;
    let taken = host.cli(&["serve", "--metrics-port", port]);
    let words = String::from_utf8_lossy(&taken.stderr);
    assert!(!taken.status.success() && words.contains(port) && words.contains("another port"), "{words}");

    // The metrics belong to the daemon and outlive a `serve`.
    assert!(client.hang_up().success());
    let (again, address) = watched(&host);
    let (_, text) = get(&address, "/metrics", &address);
    assert_eq!(value(&text, "agentiso_merge_duration_seconds_count"), 1.0);
    again.tool("workspace_adopt", json!({}));
    for workspace in ["source", "target"] {
        again.tool("workspace_destroy", json!({"workspace_id": workspace}));
    }
    host.assert_no_workspaces_left();
}
