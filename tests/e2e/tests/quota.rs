//! A workspace has its `disk_gb` and no more, with all its snapshots, whatever was forked from them; a guest that comes
//! to the end of it stands still, loses nothing and goes on when there is room.

use std::time::Duration;

use agentiso_testkit::{HostOptions, TestWorkspace, eventually, host_or_skip};
use serde_json::json;

/// Pieces of 8 MB that are written over each other before every snapshot: four of these fit into 1 GB.
const EACH: u32 = 25;
const SNAPSHOTS: [&str; 4] = ["one", "two", "three", "four"];

/// What does not fit beside them.
const MORE: u32 = 38;

/// A script that writes so many pieces, past the guest's cache.
fn writing(file: &str, pieces: u32) -> String {
    format!(
        "for i in $(seq 1 {pieces}); do dd if=/root/piece of={file} bs=8M seek=$((i-1)) oflag=direct conv=notrunc status=none; done; sync"
    )
}

/// What is on the disk, not what is in the guest's cache.
fn assert_whole(ws: &TestWorkspace<'_>, file: &str, pieces: u32) {
    ws.sh(&format!(
        "set -e; sync; echo 3 > /proc/sys/vm/drop_caches; test $(stat -c %s {file}) = $(({pieces} * 8388608)); \
         for i in $(seq 1 {pieces}); do cmp -n 8388608 -i $(((i-1) * 8388608)):0 {file} /root/piece || exit 1; done"
    ));
}

#[test]
fn snapshots_count_towards_the_disk_of_a_workspace_also_while_forks_share_them() {
    let host = host_or_skip!(HostOptions { disk_gb: 1, ..HostOptions::default() });
    let client = host.client();
    let ws = client.workspace();
    ws.sh("head -c 8388608 /dev/urandom > /root/piece");
    for snapshot in SNAPSHOTS {
        ws.sh(&format!("{}; echo {snapshot} > /root/name; sync", writing("/root/blob", EACH)));
        ws.snapshot(snapshot);
    }
    // Its memory would not fit any more: it is refused before the guest would have to stand still for it.
    let refused =
        ws.tool_error("snapshot", json!({"action": "create", "name": "memory", "include_memory": true}));
    assert_eq!(refused.code(), "disk_quota");
    refused.mentions(&["memory", "256 MB", "1024 MB"]);
    assert_eq!(ws.state(), "running");

    // All of the layers are the fork's as well, which makes no room for more of them.
    let fork = ws.fork("four");
    let more = writing("/root/more", MORE);
    ws.sh(&format!("nohup sh -c '{more}; echo > /run/done' >/dev/null 2>&1 &"));
    eventually("the guest is suspended", Duration::from_secs(90), || ws.state() == "suspended");
    let reason = ws.info()["stop_reason"].as_str().expect("a reason").to_owned();
    assert!(reason.contains("its disk") && reason.contains("snapshots"), "{reason}");
    // What the fork inherited is not its own: it has room where the source has none.
    fork.sh(&more);
    assert_eq!((fork.state().as_str(), fork.sh("cat /root/name").as_str()), ("running", "four"));
    fork.destroy();
    let waiting = ws.tool_error("exec", json!({ "command": "true" }));
    waiting.mentions(&["no room"]);
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
