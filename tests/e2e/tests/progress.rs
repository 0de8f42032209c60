//! Progress reports: every tool that may take a while sends them on request.

use std::time::{Duration, Instant};

use agentiso_e2e::internet::DRAFTS;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{Client, host_or_skip};
use serde_json::{Value, json};

/// The seconds that a client waits for the answer of a tool.
fn patience(tool: &str, arguments: &Value) -> u64 {
    match (tool, arguments["action"].as_str()) {
        ("swarm_run", _) => 300,
        ("workspace_prepare", _) => 180,
        ("workspace_fork", _) if arguments["count"].is_u64() => 180,
        ("workspace_create" | "workspace_start" | "workspace_fork" | "git_clone", _) => 120,
        ("snapshot", Some("restore")) | ("team", Some("create")) => 120,
        ("workspace_stop" | "workspace_destroy" | "workspace_merge" | "snapshot", _) => 60,
        _ => 30,
    }
}

/// Calls a tool that must report progress with messages and growing numbers, and end within the clients' timeout.
fn call_with_progress(client: &Client, tool: &str, arguments: Value) -> Value {
    let begun = Instant::now();
    let (result, reports) = client.tool_with_progress(tool, arguments.clone());
    let (took, patience) = (begun.elapsed(), Duration::from_secs(patience(tool, &arguments)));
    assert!(took < patience, "{tool} {arguments} took {took:?}");
    assert!(!reports.is_empty(), "{tool} {arguments} says nothing while it works");
    let numbers: Vec<f64> = reports.iter().filter_map(|report| report["progress"].as_f64()).collect();
    assert!(numbers.len() == reports.len() && numbers.is_sorted_by(|a, b| a < b), "{tool}: {reports:?}");
    for report in &reports {
        assert!(report["message"].as_str().is_some_and(|words| !words.is_empty()), "{tool}: {report}");
    }
    result.structured
}

#[test]
fn every_slow_tool_reports_progress() {
    let internet = internet_or_skip!();
    internet.repository("one.git", &DRAFTS);
    let test = host_or_skip!(internet.host_options(""));
    let client = test.client();
    let call_with_progress = |tool: &str, arguments: Value| call_with_progress(&client, tool, arguments);
    let gold = json!({"workspace_id": "gold"});
    let with = |more: Value| {
        let mut arguments = gold.clone();
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    call_with_progress("workspace_prepare", json!({"name": "gold", "setup_commands": ["true"]}));
    client.tool("network_policy", with(json!({"allow_domains": ["git.test"]})));
    call_with_progress("git_clone", with(json!({"url": "http://git.test/one.git"})));
    call_with_progress("snapshot", with(json!({"action": "create", "name": "live", "include_memory": true})));
    call_with_progress("snapshot", with(json!({"action": "create", "name": "still"})));
    for snapshot in ["live", "still"] {
        call_with_progress("snapshot", with(json!({"action": "restore", "name": snapshot})));
    }
    call_with_progress("workspace_fork", with(json!({"snapshot_name": "live", "new_name": "one"})));
    call_with_progress("workspace_fork", with(json!({"snapshot_name": "still", "count": 2})));
    let commit = "cd /workspace && echo x > new && git add new && git -c user.name=A -c user.email=a@b commit -q -m new";
    client.tool("exec", json!({"workspace_id": "one", "command": commit}));
    let merge = json!({"source_workspaces": ["one"], "target_workspace": "gold", "strategy": "sequential"});
    assert_eq!(call_with_progress("workspace_merge", merge)["total_commits_applied"], 1);
    call_with_progress("git_push", with(json!({})));
    let task = json!({"name": "a", "command": "true"});
    call_with_progress(
        "swarm_run",
        json!({"golden_workspace": "gold", "snapshot_name": "still", "tasks": [task]}),
    );
    let roles = json!([{"name": "ann", "role": "worker"}]);
    call_with_progress("team", json!({"action": "create", "name": "web", "roles": roles}));
    client.tool("team", json!({"action": "destroy", "name": "web"}));
    call_with_progress("workspace_stop", gold.clone());
    call_with_progress("workspace_start", gold.clone());
    for name in ["one", "worker-1", "worker-2", "gold"] {
        call_with_progress("workspace_destroy", json!({"workspace_id": name}));
    }
    call_with_progress("workspace_create", json!({"name": "last"}));
    client.tool("workspace_destroy", json!({"workspace_id": "last"}));
    test.assert_no_workspaces_left();
}
