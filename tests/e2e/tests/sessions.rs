//! Ownership: two clients, sessions that are gone, adoption, quota.

use std::time::{Duration, Instant};

use agentiso_testkit::{Client, HostOptions, TestHost, eventually, host_or_skip};
use serde_json::json;

fn adopt_without_force(client: &Client, id: &str) {
    eventually("the owner has become a ghost", Duration::from_secs(30), || {
        !client.try_tool("workspace_adopt", json!({"workspace_id": id})).is_error
    });
}

#[test]
fn workspace_belongs_to_one_session() {
    let host = host_or_skip!();
    let (owner, other) = (host.client(), host.client());
    let ws = owner.workspace();
    let seen = other.tool("workspace_list", json!({})).json();
    assert_eq!((seen[0]["workspace_id"].as_str(), &seen[0]["owned"]), (Some(ws.id.as_str()), &json!(false)));
    for (tool, more) in [
        ("exec", json!({"command": "true"})),
        ("workspace_info", json!({})),
        ("workspace_logs", json!({})),
        ("workspace_stop", json!({})),
        ("workspace_start", json!({})),
        ("file_read", json!({"path": "/etc/hostname"})),
        ("file_write", json!({"path": "/x", "content": ""})),
        ("file_edit", json!({"path": "/x", "old_string": "a", "new_string": "b"})),
        ("file_list", json!({"path": "/"})),
    ] {
        other.tool_error(tool, ws.with_id(more)).mentions(&["workspace_adopt"]);
    }
    other.tool_error("workspace_adopt", json!({"workspace_id": ws.id, "force": true})).mentions(&["60"]);
    other.tool_error("workspace_destroy", json!({"workspace_id": ws.id}));
    assert_eq!(ws.sh("echo mine"), "mine");
    let again = owner.tool("workspace_adopt", json!({"workspace_id": ws.name})).json();
    assert_eq!((&again["adopted"], &again["workspace_id"]), (&json!(true), &json!(ws.id)));
}

#[test]
fn next_client_can_adopt_abandoned_workspaces() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace_with(json!({"name": "left"}));
    ws.sh("echo still here > /root/note; (sleep 1000 & echo $! > /root/pid) >/dev/null 2>&1");
    let id = ws.id.clone();
    // A running call does not delay the end of `serve`.
    let _under_way =
        first.start_tool("exec", ws.with_id(json!({"command": "touch /root/begun; sleep 1000"})));
    eventually("the command runs", Duration::from_secs(60), || ws.exec("test -e /root/begun").exit_code == 0);
    let begun = Instant::now();
    assert!(first.hang_up().success());
    assert!(begun.elapsed() < Duration::from_secs(5), "serve went on for {:?}", begun.elapsed());

    let next = host.client();
    adopt_without_force(&next, &id);
    let out = next.tool(
        "exec",
        json!({"workspace_id": "left", "command": "cat /root/note; kill -0 $(cat /root/pid) && echo lives"}),
    );
    assert_eq!(out.json()["stdout"], "still here\nlives\n");
    next.tool("workspace_destroy", json!({"workspace_id": "left"})).mentions(&["destroyed"]);
    host.assert_no_workspaces_left();
}

#[test]
fn bulk_adoption_takes_only_ownerless_workspaces() {
    let host = host_or_skip!();
    let (gone, alive, next) = (host.client(), host.client(), host.client());
    let none = next.tool("workspace_adopt", json!({})).json();
    assert_eq!((&none["adopted_count"], &none["error_count"]), (&json!(0), &json!(0)));
    let orphan = gone.workspace_with(json!({"name": "orphan"}));
    let kept = alive.workspace_with(json!({"name": "kept"}));
    let orphan_id = orphan.id.clone();
    gone.hang_up();
    let mut adopted = json!(null);
    eventually("the orphan is adopted", Duration::from_secs(30), || {
        adopted = next.tool("workspace_adopt", json!({})).json();
        adopted["adopted_count"] == 1
    });
    assert_eq!(adopted["adopted"][0]["workspace_id"], orphan_id);
    let forced = next.tool("workspace_adopt", json!({"force": true})).json();
    assert_eq!(forced["error_count"], 1, "{forced}");
    assert_eq!(forced["errors"][0]["workspace_id"], kept.id);
    assert_eq!(kept.sh("echo mine"), "mine");
}

#[test]
fn ownerless_workspace_is_destroyed_without_adoption() {
    let host = host_or_skip!();
    let first = host.client();
    let ws = first.workspace();
    let id = ws.id.clone();
    first.hang_up();
    let next = host.client();
    eventually("the owner has become a ghost", Duration::from_secs(30), || {
        !next.try_tool("workspace_destroy", json!({"workspace_id": id})).is_error
    });
    host.assert_no_workspaces_left();
}

#[test]
fn parallel_creates_respect_the_session_quota() {
    let host: TestHost =
        host_or_skip!(HostOptions { max_workspaces: 50, memory_mb: 128, ..HostOptions::default() });
    let client = host.client();
    let pending: Vec<_> =
        (0..20).map(|i| client.start_tool("workspace_create", json!({"name": format!("n{i}")}))).collect();
    let results: Vec<_> = pending.into_iter().map(agentiso_testkit::Pending::tool).collect();
    let refused: Vec<_> = results.iter().filter(|r| r.is_error).collect();
    assert_eq!(refused.len(), 10, "{:?}", refused.iter().map(|r| &r.text).collect::<Vec<_>>());
    for error in refused {
        error.mentions(&["quota"]);
    }
    let list = client.tool("workspace_list", json!({"state_filter": "running"})).json();
    assert_eq!(list.as_array().unwrap().len(), 10);
    assert_eq!(host.vms().len(), 10);
    let ips: std::collections::HashSet<_> =
        list.as_array().unwrap().iter().map(|w| w["ip"].to_string()).collect();
    assert_eq!(ips.len(), 10, "addresses are unique");
    let gone: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|w| client.start_tool("workspace_destroy", json!({"workspace_id": w["workspace_id"]})))
        .collect();
    for pending in gone {
        assert!(!pending.tool().is_error);
    }
    host.assert_no_workspaces_left();
}
