//! Snapshots of the disk alone, and of disk and memory: create, restore, diff, delete.

use std::time::{Duration, Instant};

use agentiso_testkit::{LONG, TestWorkspace, eventually, host_or_skip};
use serde_json::{Value, json};

/// A process that counts into a file and keeps its count only in memory.
const COUNT: &str = "nohup sh -c 'n=0; while :; do n=$((n+1)); echo $n > /tmp/n; mv /tmp/n /tmp/count; sleep 0.05; done' \
                     >/dev/null 2>&1 & echo $!";

fn count(ws: &TestWorkspace<'_>) -> u64 {
    ws.sh("cat /tmp/count 2>/dev/null || echo 0").parse().expect("a number")
}

fn counts_on(ws: &TestWorkspace<'_>, from: u64) {
    eventually("the process counts on", LONG, || count(ws) > from);
}

/// The time limit for the diff of an ordinary workspace on a busy host.
const DIFF_TAKES: Duration = Duration::from_secs(20);

fn paths(changed: &Value) -> Vec<&str> {
    changed.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect()
}

#[test]
fn restore_reverts_files_and_keeps_snapshots() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.write("/workspace/file", "first\n");
    ws.sh("echo kept > /tmp/kept");
    let made = ws.snapshot("first").json();
    assert_eq!((&made["name"], &made["has_memory"]), (&json!("first"), &json!(false)));
    ws.sh("echo second > /workspace/file; echo new > /root/new; rm /tmp/kept; touch /tmp/new");
    ws.snapshot("second");

    ws.restore("first").mentions(&["first", "no processes"]);
    assert_eq!(ws.state(), "running");
    assert_eq!(ws.read("/workspace/file"), "first\n");
    assert_eq!(ws.sh("ls /root/new /tmp/new 2>/dev/null; cat /tmp/kept"), "kept", "all of the disk");
    assert_eq!(ws.snapshot_names(), ["first", "second"]);
    ws.restore("second");
    assert_eq!(ws.read("/workspace/file"), "second\n");
    ws.stop();
    ws.restore("first");
    assert_eq!((ws.state().as_str(), ws.read("/workspace/file").as_str()), ("running", "first\n"));

    ws.snapshot("third");
    let list = ws.snapshots();
    let parents: Vec<&Value> = list.iter().map(|one| &one["parent"]).collect();
    assert_eq!(parents, [&Value::Null, &json!("first"), &json!("first")], "snapshots form a tree");
    let current: Vec<&Value> = list.iter().map(|one| &one["current"]).collect();
    assert_eq!(current, [&json!(false), &json!(false), &json!(true)]);
    ws.delete_snapshot("first");
    assert_eq!(ws.snapshot_names(), ["second", "third"]);
    ws.restore("second");
    assert_eq!(ws.read("/workspace/file"), "second\n", "what the deleted one held is still there");
    ws.destroy();
    host.assert_no_workspaces_left();
}

#[test]
fn acknowledged_writes_are_in_the_snapshot() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let sum = ws.sh("head -c 8000000 /dev/urandom > /workspace/blob; sha256sum < /workspace/blob");
    ws.snapshot("s");
    ws.sh("rm /workspace/blob; sync");
    ws.restore("s");
    assert_eq!(ws.sh("sha256sum < /workspace/blob"), sum);
}

#[test]
fn memory_snapshot_preserves_running_processes() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let pid = ws.sh(COUNT);
    counts_on(&ws, 3);
    let random = ws.sh("od -An -tx1 -N16 /dev/urandom");
    assert_eq!(ws.snapshot_with_memory("m").json()["has_memory"], true);
    let taken = count(&ws);
    eventually("the process goes on", LONG, || count(&ws) > taken + 40);
    ws.sh("echo lost > /root/lost");
    let reached = count(&ws);

    let restored = ws.restore("m");
    restored.mentions(&["processes go on"]);
    assert_eq!(restored.structured["processes_restored"], true);
    let back = count(&ws);
    assert!(back < reached, "it counted to {reached} and is back at {back}");
    ws.sh(&format!("kill -0 {pid}"));
    counts_on(&ws, back);
    assert_eq!(ws.exec("test -e /root/lost").exit_code, 1, "disk and memory are of one instant");
    assert_ne!(ws.sh("od -An -tx1 -N16 /dev/urandom"), random);

    // The same snapshot again, from a stopped workspace.
    ws.stop();
    ws.restore("m").mentions(&["processes go on"]);
    ws.sh(&format!("kill -0 {pid}"));
    counts_on(&ws, count(&ws));
}

#[test]
fn diff_lists_the_changed_paths() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.sh("echo a > /workspace/changed; echo b > /workspace/removed; echo c > /workspace/same");
    ws.snapshot("s");
    ws.sh("echo longer > /workspace/changed; rm /workspace/removed; mkdir /workspace/d; echo new > '/workspace/d/ü 1'");
    let begun = Instant::now();
    let diff = ws.tool("snapshot", json!({"action": "diff", "name": "s"})).json();
    assert!(begun.elapsed() < DIFF_TAKES, "it took {:?}", begun.elapsed());
    assert!(diff["changed_bytes"].as_u64().unwrap() > 0, "{diff}");
    let added = paths(&diff["added"]);
    assert!(added.contains(&"/workspace/d") && added.contains(&"/workspace/d/ü 1"), "{diff}");
    assert!(paths(&diff["modified"]).contains(&"/workspace/changed"), "{diff}");
    assert_eq!(paths(&diff["removed"]), ["/workspace/removed"]);
    assert!(!diff.to_string().contains("/workspace/same"), "{diff}");
    ws.stop();
    let begun = Instant::now();
    let stopped = ws.tool("snapshot_diff", json!({"snapshot_name": "s"})).json();
    assert!(begun.elapsed() < DIFF_TAKES, "it took {:?}", begun.elapsed());
    assert!(paths(&stopped["added"]).contains(&"/workspace/d/ü 1"), "{stopped}");
    assert!(paths(&stopped["modified"]).contains(&"/workspace/changed"), "{stopped}");
    assert_eq!(paths(&stopped["removed"]), ["/workspace/removed"]);
}

#[test]
fn deleting_a_snapshot_frees_its_space() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let used = || ws.info()["disk_used_bytes"].as_u64().unwrap();
    // Overwrites the same blocks each time: old blocks elsewhere would be freed by a discard only.
    let fill = "dd if=/dev/urandom of=/workspace/blob bs=1000000 count=16 conv=notrunc,fsync 2>&1";
    for name in ["a", "b", "c"] {
        ws.sh(fill);
        ws.snapshot(name);
    }
    ws.sh(fill);
    let sum = ws.sh("sha256sum < /workspace/blob");
    let before = used();
    for one in ws.snapshots() {
        let [used, referenced] = ["used_bytes", "referenced_bytes"].map(|key| one[key].as_u64().unwrap());
        assert!(referenced >= used && referenced >= 16_000_000, "{one}");
    }
    ws.delete_snapshot("b");
    let comes_back = |bytes: u64| {
        eventually("the space comes back", Duration::from_secs(60), || used() + bytes < before);
    };
    comes_back(12_000_000);
    // While the VM runs, the layer below a small head is not merged.
    ws.stop();
    ws.delete_snapshot("c");
    ws.delete_snapshot("a");
    comes_back(44_000_000);
    ws.start();
    assert_eq!(ws.sh("sha256sum < /workspace/blob"), sum);
}

#[test]
fn bad_snapshot_requests_suggest_a_fix() {
    let host = host_or_skip!();
    let config = std::fs::read_to_string(host.config_path()).unwrap();
    let config = config.replace("[resources]\n", "[resources]\nmax_snapshots_per_workspace = 2\n");
    std::fs::write(host.config_path(), config).unwrap();
    let client = host.client();
    let ws = client.workspace_with(json!({"name": "only"}));
    let refused = |arguments: Value| ws.tool_error("snapshot", arguments);
    refused(json!({"action": "restor", "name": "x"})).mentions(&[
        "create",
        "delete",
        "did you mean \"restore\"",
    ]);
    refused(json!({"action": "create"})).mentions(&["name is missing"]);
    refused(json!({})).mentions(&["action is missing"]);
    for name in ["", "a/b", "../x", "a;reboot", "a\nb", "ä", &"x".repeat(129)] {
        refused(json!({"action": "create", "name": name})).mentions(&["name"]);
    }
    let missing = refused(json!({"action": "restore", "name": "nosuch"}));
    assert_eq!(missing.code(), "snapshot_not_found");
    ws.snapshot("one");
    assert_eq!(refused(json!({"action": "create", "name": "one"})).code(), "snapshot_exists");
    refused(json!({"action": "delete", "name": "onee"})).mentions(&["did you mean \"one\""]);
    ws.snapshot("two");
    assert_eq!(refused(json!({"action": "create", "name": "three"})).code(), "too_many_snapshots");
    ws.stop();
    let stopped = refused(json!({"action": "create", "name": "three", "include_memory": true}));
    stopped.mentions(&["not running", "workspace_start"]);
    let other = host.client();
    let foreign = other.tool_error("snapshot", json!({"action": "list", "workspace_id": "only"}));
    assert_eq!(foreign.code(), "not_owned");
}

#[test]
fn snapshots_survive_a_killed_daemon() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace_with(json!({"name": "kept"}));
    ws.write("/workspace/file", "first\n");
    ws.snapshot("s");
    ws.write("/workspace/file", "second\n");
    host.kill_daemon();
    drop(client);
    let client = host.client();
    client.tool("workspace_adopt", json!({"workspace_id": "kept"}));
    let names = |list: Value| list[0]["name"].clone();
    let list = client.tool("snapshot", json!({"action": "list", "workspace_id": "kept"})).json();
    assert_eq!(names(list), "s");
    client.tool("snapshot", json!({"action": "restore", "name": "s", "workspace_id": "kept"}));
    let read = client.tool("file_read", json!({"path": "/workspace/file", "workspace_id": "kept"}));
    assert_eq!(read.text, "first\n");
}

#[test]
fn cli_takes_lists_and_restores_snapshots() {
    let host = host_or_skip!();
    host.cli_ok(&["create", "box"]);
    host.cli_ok(&["exec", "box", "--", "echo one > /root/file"]);
    let made = host.cli_ok(&["snapshot", "create", "box", "clean", "--memory"]);
    assert!(made.contains("clean") && made.contains("memory"), "{made}");
    host.cli_ok(&["exec", "box", "--", "echo two > /root/file; touch /root/new"]);
    let listed: Value = serde_json::from_str(&host.cli_ok(&["snapshot", "ls", "box", "--json"])).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["current"]), (&json!("clean"), &json!(true)));
    let diff = host.cli_ok(&["snapshot", "diff", "box", "clean"]);
    assert!(diff.contains("A /root/new") && diff.contains("M /root/file"), "{diff}");
    let restored = host.cli_ok(&["restore", "box", "clean"]);
    assert!(restored.contains("processes continue"), "{restored}");
    assert_eq!(host.cli_ok(&["exec", "box", "--", "cat", "/root/file"]), "one\n");
    let tree = host.cli_ok(&["tree", "box"]);
    assert!(tree.contains("● box") && tree.contains("└─ @clean") && tree.contains("current"), "{tree}");
    host.cli_ok(&["snapshot", "rm", "box", "clean"]);
    let refused = host.cli(&["restore", "box", "clean"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no snapshot"), "{refused:?}");
    host.cli_ok(&["rm", "box"]);
    host.assert_no_workspaces_left();
}
