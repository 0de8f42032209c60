//! Export of a snapshot to a file, and import of the file on another host.

use std::time::Duration;

use agentiso_testkit::{TestHost, eventually, host_or_skip};
use serde_json::Value;

/// A process that counts and keeps its count only in memory.
const COUNT: &str = "nohup sh -c 'n=0; while :; do n=$((n+1)); echo $n > /tmp/n; mv /tmp/n /tmp/count; sleep 0.05; done' \
                     >/dev/null 2>&1 &";

fn count(host: &TestHost, workspace: &str) -> u64 {
    host.cli_ok(&["exec", workspace, "--", "cat /tmp/count 2>/dev/null || echo 0"]).trim().parse().unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn exported_vm_continues_on_another_host() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let name = ws.info()["name"].as_str().unwrap().to_owned();
    ws.sh(COUNT);
    eventually("the process counts", Duration::from_secs(60), || count(&host, &name) > 3);
    ws.write("/workspace/file", "prepared\n");
    ws.snapshot_with_memory("ready");
    let file = host.dir().join("ready.agentiso");
    let path = file.to_str().unwrap();

    let exported = json(&host.cli_ok(&["snapshot", "export", &name, "ready", path, "--json"]));
    assert_eq!(exported["has_memory"], true);
    assert_eq!(exported["file_bytes"], file.metadata().unwrap().len());
    let dirs = host.workspace_dirs();
    assert_eq!(dirs, 1, "what the export needed is gone");
    let refused = host.cli(&["snapshot", "export", &name, "ready", path]);
    assert!(!refused.status.success());
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("exists already") && words.contains("--force"), "{words}");
    host.cli_ok(&["snapshot", "export", &name, "ready", path, "--force"]);
    let at_export = count(&host, &name);
    let taken = host.cli(&["snapshot", "import", path]);
    assert!(String::from_utf8_lossy(&taken.stderr).contains("exists already"), "its name is taken here");
    ws.destroy();
    client.hang_up();

    // To agentiso, another data directory is another host.
    let other = host_or_skip!();
    let imported = json(&other.cli_ok(&["snapshot", "import", path, "--json"]));
    assert_eq!((&imported["name"], &imported["state"]), (&name.as_str().into(), &"running".into()));
    assert_eq!((&imported["rung"], &imported["warning"]), (&"memory".into(), &Value::Null), "{imported}");
    let there = count(&other, &name);
    assert!(there < at_export, "it went on from the snapshot: {there} < {at_export}");
    eventually("the process counts on", Duration::from_secs(60), || count(&other, &name) > there);
    assert_eq!(
        other.cli_ok(&["exec", &name, "--", "cat /workspace/file; hostname"]),
        format!("prepared\n{name}\n")
    );
    let snapshots = json(&other.cli_ok(&["snapshot", "ls", &name, "--json"]));
    assert_eq!((&snapshots[0]["name"], &snapshots[0]["current"]), (&"ready".into(), &true.into()));
    other.cli_ok(&["fork", &name, "ready", "fork"]);
    eventually("the fork counts", Duration::from_secs(60), || count(&other, "fork") > 0);
    other.cli_ok(&["restore", &name, "ready"]);
    other.cli_ok(&["rm", "fork"]);
    other.cli_ok(&["snapshot", "rm", &name, "ready"]);
    // Neither the file nor the snapshot is needed any more.
    std::fs::remove_file(&file).unwrap();
    other.cli_ok(&["stop", &name]);
    other.cli_ok(&["start", &name]);
    assert_eq!(other.cli_ok(&["exec", &name, "--", "cat /workspace/file"]), "prepared\n");
    other.cli_ok(&["rm", &name]);
    other.assert_no_workspaces_left();
}

#[test]
fn damaged_export_is_refused_and_leaves_nothing() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let name = ws.info()["name"].as_str().unwrap().to_owned();
    ws.snapshot("ready");
    let file = host.dir().join("ready.agentiso");
    let path = file.to_str().unwrap();
    host.cli_ok(&["snapshot", "export", &name, "ready", path]);
    let whole = std::fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (content, words) in [
        (&whole[..whole.len() - 1], "damaged or truncated"),
        (&whole[..whole.len() / 2], "damaged or truncated"),
        (&flipped[..], "cannot be imported"),
        (b"#!/bin/sh\n", "not an agentiso export"),
        (b"", "not an agentiso export"),
    ] {
        std::fs::write(&file, content).unwrap();
        let refused = host.cli(&["snapshot", "import", path, "other"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(words), "{said}");
        assert_eq!((host.workspace_dirs(), host.vms().len()), (1, 1));
    }
    let missing = host.cli(&["snapshot", "import", "/nonexistent/file"]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nonexistent/file"));
    std::fs::write(&file, whole).unwrap();
    let imported = json(&host.cli_ok(&["snapshot", "import", path, "other", "--disk-only", "--json"]));
    assert_eq!(imported["processes_restored"], false);
    host.cli_ok(&["rm", "other"]);
    ws.destroy();
    host.assert_no_workspaces_left();
}
