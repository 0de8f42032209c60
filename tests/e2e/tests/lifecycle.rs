//! The life cycle of a workspace: create, list, info, logs, stop, start, destroy.

use std::time::Duration;

use agentiso_testkit::{HostOptions, LONG, eventually, host_or_skip};
use serde_json::json;

#[test]
fn workspace_is_created_used_and_destroyed() {
    let host = host_or_skip!();
    let client = host.client();
    assert_eq!(client.tool("workspace_list", json!({})).text, "[]");

    let ws = client.workspace_with(json!({"name": "first"}));
    assert_eq!(ws.created["state"], "running");
    assert_eq!(ws.created["ip"], "10.42.0.2");
    assert_eq!(ws.created["from_pool"], false);
    assert!(ws.created["boot_time_ms"].as_u64().unwrap() > 0);
    assert_eq!(ws.created["resources"], json!({"vcpus": 1, "memory_mb": 256, "disk_gb": 2}));
    assert_eq!(ws.sh("echo hi; pwd; id -u"), "hi\n/root\n0");
    assert_eq!(ws.sh("test -d /workspace && hostname"), "first");
    // Periodic work of an idle kernel is turned off.
    let rest = ws.sh("cd /proc/sys; cat vm/compaction_proactiveness vm/stat_interval kernel/watchdog");
    assert_eq!(rest, "0\n60\n0");
    let [vm] = host.vms()[..] else { panic!("one VM, not {:?}", host.vms()) };
    eventually("an idle VM lets its host sleep", Duration::from_secs(60), || wakes_a_second(vm) < 20);

    ws.destroy();
    assert_eq!(client.tool("workspace_list", json!({})).text, "[]");
    host.assert_no_workspaces_left();
}

/// The number of times per second that the first thread of a process wakes up, measured over two seconds. A needless
/// timer wakes it 46 times.
#[expect(clippy::disallowed_methods, reason = "it is about how much happens while nothing does")]
fn wakes_a_second(pid: i32) -> u64 {
    const SECONDS: u64 = 2;
    let woken = || -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("counted").trim().parse().expect("a number")
    };
    let before = woken();
    std::thread::sleep(Duration::from_secs(SECONDS));
    (woken() - before) / SECONDS
}

#[test]
fn list_names_every_workspace_and_filters_them() {
    let host = host_or_skip!();
    let client = host.client();
    let a = client.workspace_with(json!({"name": "a"}));
    let b = client.workspace_with(json!({"name": "b"}));
    b.stop();
    let list = client.tool("workspace_list", json!({})).json();
    let entry = list.as_array().unwrap().iter().find(|e| e["name"] == "a").unwrap().clone();
    assert_eq!(entry["workspace_id"], a.id.as_str());
    assert_eq!(entry["owned"], true);
    assert_eq!(entry["resources"]["memory_mb"], 256);
    for (filter, expected) in [("running", "a"), ("stopped", "b")] {
        let list = client.tool("workspace_list", json!({"state_filter": filter})).json();
        assert_eq!(list.as_array().unwrap().len(), 1, "{filter}: {list}");
        assert_eq!(list[0]["name"], expected);
    }
    assert_eq!(client.tool("workspace_list", json!({"state_filter": "suspended"})).text, "[]");
    client.tool_error("workspace_list", json!({"state_filter": "asleep"})).mentions(&[
        "running",
        "stopped",
        "suspended",
    ]);
}

#[test]
fn info_has_the_documented_shape() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace_with(json!({"name": "info.me_1"}));
    let info = client.tool("workspace_info", json!({"workspace_id": "info.me_1"})).json();
    assert_eq!(info["workspace_id"], ws.id.as_str());
    assert_eq!(info["state"], "running");
    assert_eq!(info["base_image"], "debian-minimal");
    assert_eq!(info["ip"], ws.created["ip"]);
    let network =
        json!({"allow_internet": false, "allow_inter_vm": false, "allowed_ports": [], "port_forwards": []});
    assert_eq!(info["network"], network);
    assert_eq!(info["snapshots"], json!([]));
    assert!(info["created_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(info["disk_volsize_bytes"], 2_u64 << 30);
    assert!(info["disk_used_bytes"].as_u64().unwrap() < 1 << 30);
    assert_eq!(ws.sh("hostname"), "info-me-1", "dots and underscores are no part of a host name");
}

#[test]
fn disk_content_survives_a_stop_and_a_start() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    ws.write("/workspace/kept", "here\n");
    ws.sh("echo unsynced > /root/also");
    let ip = ws.info()["ip"].clone();
    ws.stop();
    assert_eq!(ws.state(), "stopped");
    ws.tool_error("exec", json!({"command": "true"})).mentions(&["not running", "workspace_start"]);
    ws.tool_error("file_read", json!({"path": "/workspace/kept"})).mentions(&["not running"]);
    ws.tool_error("workspace_stop", json!({})).mentions(&["not running"]);
    ws.start();
    assert_eq!(ws.state(), "running");
    assert_eq!(ws.read("/workspace/kept"), "here\n");
    assert_eq!(ws.sh("cat /root/also"), "unsynced");
    assert_eq!(ws.info()["ip"], ip);
    ws.tool_error("workspace_start", json!({})).mentions(&["already running"]);
}

#[test]
fn guest_sees_requested_resources_and_subnet() {
    let config = "[network]\ngateway_ip = \"10.77.3.1\"\nsubnet_prefix = 24\n".to_owned();
    let host = host_or_skip!(HostOptions { config, ..HostOptions::default() });
    let client = host.client();
    // 2 GiB is the one size at which QEMU would place the initramfs over the firmware's tables.
    let ws = client.workspace_with(json!({"vcpus": 2, "memory_mb": 2048, "disk_gb": 5}));
    assert_eq!(ws.sh("nproc"), "2");
    let memory_mb: u64 = ws.sh("awk '/MemTotal/ {print int($2/1024)}' /proc/meminfo").parse().unwrap();
    assert!((1900..=2048).contains(&memory_mb), "{memory_mb} MB");
    let device: u64 = ws.sh("cat /sys/class/block/vda/size").parse().unwrap();
    assert_eq!(device * 512, 5 << 30);
    let filesystem_mb: u64 = ws.sh("df -m / | awk 'NR==2 {print $2}'").parse().unwrap();
    assert!((4600..=5120).contains(&filesystem_mb), "{filesystem_mb} MB");
    assert_eq!(ws.created["ip"], "10.77.3.2");
    let table = ws.sh("cat /proc/net/fib_trie; cat /etc/resolv.conf");
    assert!(table.contains("10.77.3.0/24") && table.contains("|-- 10.77.3.2"), "{table}");
    assert!(table.contains("nameserver 10.77.3.1"), "{table}");
}

#[test]
fn bad_create_requests_list_every_reason() {
    let host = host_or_skip!(HostOptions { max_workspaces: 1, ..HostOptions::default() });
    let client = host.client();
    let create = |arguments| client.tool_error("workspace_create", arguments);
    create(json!({"vcpus": 0, "memory_mb": 1, "disk_gb": 100_000, "name": "a b"})).mentions(&[
        "vcpus",
        "memory_mb",
        "disk_gb",
        "name",
    ]);
    create(json!({"vcpus": "two", "memory": 512})).mentions(&["vcpus", "memory_mb"]);
    create(json!({"memory_mb": 18_446_744_073_709_551_615_u64})).mentions(&["memory_mb"]);
    create(json!({"vcpus": -1})).mentions(&["vcpus"]);
    create(json!({"base_image": "no-such-image"})).mentions(&["no-such-image", "debian-minimal"]);
    create(json!({"base_image": "../etc"})).mentions(&["base_image"]);
    for name in ["", "..", "a/b", "a\nb", "a\"b", "a'b;", "ä", "a\u{0}b", &"x".repeat(129)] {
        create(json!({"name": name})).mentions(&["name"]);
    }
    create(json!({"allow_internet": "yes"})).mentions(&["allow_internet"]);

    let ws = client.workspace_with(json!({"name": "only"}));
    create(json!({"name": "only"})).mentions(&["only", "already"]);
    create(json!({"name": "second"})).mentions(&["1"]);
    client.tool_error("workspace_info", json!({"workspace_id": "onyl"})).mentions(&[
        "onyl",
        "only",
        "workspace_list",
    ]);
    client.tool_error("workspace_info", json!({})).mentions(&["workspace_id"]);
    let nobody = "00000000-0000-4000-8000-000000000000";
    for tool in ["workspace_destroy", "workspace_start", "workspace_stop", "workspace_info", "workspace_logs"]
    {
        client.tool_error(tool, json!({"workspace_id": nobody})).mentions(&[nobody]);
    }
    ws.destroy();
    host.assert_no_workspaces_left();
}

#[test]
fn logs_remain_after_a_stop() {
    let host = host_or_skip!();
    let client = host.client();
    let ws = client.workspace();
    let both = ws.tool("workspace_logs", json!({})).json();
    let size = |logs: &serde_json::Value| {
        ["console", "stderr"].iter().filter_map(|k| logs[k].as_str()).map(str::len).sum::<usize>()
    };
    assert!(size(&both) > 0, "both logs are empty: {both}");
    let console = ws.tool("workspace_logs", json!({"log_type": "console", "max_lines": 1})).json();
    assert!(console["console"].as_str().unwrap().lines().count() <= 1);
    assert!(console.get("stderr").is_none());
    ws.stop();
    assert!(size(&ws.tool("workspace_logs", json!({"log_type": "anything"})).json()) > 0);
}

#[test]
fn addresses_are_unique_and_names_are_reusable() {
    let host = host_or_skip!();
    let client = host.client();
    let a = client.workspace_with(json!({"name": "again"}));
    let b = client.workspace();
    assert_ne!(a.created["ip"], b.created["ip"]);
    assert!(b.name.starts_with("ws-") && b.name.len() == 11, "{}", b.name);
    a.destroy();
    let c = client.workspace_with(json!({"name": "again"}));
    assert_ne!(c.created["ip"], b.created["ip"]);
}

#[test]
fn daemon_recreates_its_deleted_log() {
    let host = host_or_skip!();
    let _client = host.client();
    let log = host.data().join("daemon.log");
    eventually("the log is there", LONG, || log.exists());
    std::fs::remove_file(&log).unwrap();
    eventually("the log is made again", LONG, || log.exists());
}
