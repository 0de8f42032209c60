//! The disk quota: `disk_gb` limits a workspace and all its snapshots together, also if forks share them. A guest at
//! the limit is suspended, loses nothing and resumes when there is space.

use std::time::Duration;

use agentiso_testkit::{HostOptions, TestWorkspace, eventually, host_or_skip};
use serde_json::json;

/// Pieces of 8 MB that are overwritten before every snapshot: four times this fits into 1 GB.
const EACH: u32 = 25;
const SNAPSHOTS: [&str; 4] = ["one", "two", "three", "four"];

/// Pieces that do not fit in addition.
const MORE: u32 = 38;

/// A script that writes this many pieces, bypassing the guest's cache.
fn writing(file: &str, pieces: u32) -> String {
    format!(
        "for i in $(seq 1 {pieces}); do dd if=/root/piece of={file} bs=8M seek=$((i-1)) oflag=direct conv=notrunc status=none; done; sync"
    )
}

/// Compares the file on disk, not in the guest's cache.
fn assert_whole(ws: &TestWorkspace<'_>, file: &str, pieces: u32) {
    ws.sh(&format!(
        "set -e; sync; echo 3 > /proc/sys/vm/drop_caches; test $(stat -c %s {file}) = $(({pieces} * 8388608)); \
         for i in $(seq 1 {pieces}); do cmp -n 8388608 -i $(((i-1) * 8388608)):0 {file} /root/piece || exit 1; done"
    ));
}

#[test]
fn snapshots_shared_with_forks_count_toward_quota() {
    let host = host_or_skip!(HostOptions { disk_gb: 1, ..HostOptions::default() });
    let client = host.client();
    let ws = client.workspace();
    ws.sh("head -c 8388608 /dev/urandom > /root/piece");
    for snapshot in SNAPSHOTS {
        ws.sh(&format!("{}; echo {snapshot} > /root/name; sync", writing("/root/blob", EACH)));
        ws.snapshot(snapshot);
    }
    // A memory snapshot would not fit any more: it is refused before the guest is paused.
    let refused =
        ws.tool_error("snapshot", json!({"action": "create", "name": "memory", "include_memory": true}));
    assert_eq!(refused.code(), "disk_quota");
    refused.mentions(&["memory", "256 MB", "1024 MB"]);
    assert_eq!(ws.state(), "running");

    // The fork shares all layers, but that does not raise the source's limit.
    let fork = ws.fork("four");
    let more = writing("/root/more", MORE);
    ws.sh(&format!("nohup sh -c '{more}; echo > /run/done' >/dev/null 2>&1 &"));
    eventually("the guest is suspended", Duration::from_secs(90), || ws.state() == "suspended");
    let reason = ws.info()["stop_reason"].as_str().expect("a reason").to_owned();
    assert!(reason.contains("its disk") && reason.contains("snapshots"), "{reason}");
    // Inherited layers do not count for the fork: it has space when the source has none.
    fork.sh(&more);
    assert_eq!((fork.state().as_str(), fork.sh("cat /root/name").as_str()), ("running", "four"));
    fork.destroy();
    let waiting = ws.tool_error("exec", json!({ "command": "true" }));
    waiting.mentions(&["is paused"]);
    assert_eq!(ws.state(), "suspended", "a fork that goes makes no room either");

    ws.delete_snapshot("one");
    ws.delete_snapshot("two");
    eventually("it goes on", Duration::from_secs(60), || ws.state() == "running");
    ws.sh("while [ ! -e /run/done ]; do sleep 0.2; done");
    assert_whole(&ws, "/root/more", MORE);
    assert_whole(&ws, "/root/blob", EACH);
    ws.restore("three");
    assert_eq!(ws.sh("cat /root/name"), "three");
    assert_whole(&ws, "/root/blob", EACH);
    ws.destroy();
    host.assert_no_workspaces_left();
}
