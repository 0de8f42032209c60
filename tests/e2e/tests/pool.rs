//! Machines that stand ready: handed over at once, seen by nobody, gone with the daemon.

use std::time::{Duration, Instant};

use agentiso_testkit::{Client, HostOptions, TestHost, eventually, host_or_skip};
use serde_json::json;

fn pooled() -> TestHost {
    let config = "[pool]\nenabled = true\nmin_size = 1\ntarget_free = 1\n".to_owned();
    TestHost::start_with(HostOptions { config, ..HostOptions::default() })
}

/// Neither filling a pool nor sweeping one delays the handshake beyond what clients allow a server that was started.
fn greeted(host: &TestHost) -> Client {
    const HELLO: Duration = Duration::from_secs(15);
    let began = Instant::now();
    let client = host.client();
    let took = began.elapsed();
    assert!(took < HELLO, "the handshake took {took:?}");
    client
}

/// Whether a guest of the pool has said on its console that it is up.
fn stands_ready(host: &TestHost) -> bool {
    let workspaces = std::fs::read_dir(host.data().join("workspaces")).into_iter().flatten().flatten();
    workspaces
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("console.log")).ok())
        .any(|console| console.contains("this machine is standby"))
}

#[test]
fn a_machine_from_the_pool_is_as_one_that_was_made_for_the_purpose() {
    drop(host_or_skip!());
    let host = pooled();
    let client = greeted(&host);
    eventually("a machine stands ready", Duration::from_secs(110), || host.machines().len() == 1);
    assert_eq!(client.tool("workspace_list", json!({})).json(), json!([]), "nobody sees it");
    // The process is there before its guest is.
    eventually("its guest is up", Duration::from_secs(110), || stands_ready(&host));
    let mut made = Vec::new();
    eventually("one comes from the pool", Duration::from_secs(110), || {
        made.push(client.tool("workspace_create", json!({})).json());
        made.last().is_some_and(|created| created["from_pool"] == true)
    });
    let created = made.last().expect("one was made");
    let id = json!({ "workspace_id": created["workspace_id"] });
    let shell = |command: &str| {
        let mut arguments = id.clone();
        arguments["command"] = json!(command);
        client.tool("exec", arguments).json()["stdout"].as_str().expect("text").trim().to_owned()
    };
    assert_eq!(shell("hostname"), created["name"].as_str().expect("a name"));
    assert_eq!(shell("cat /etc/hostname"), shell("hostname"));
    let address = created["ip"].as_str().expect("an address");
    assert!(shell("cat /proc/net/fib_trie").contains(address));
    let machine_id = created["workspace_id"].as_str().expect("an id").replace('-', "");
    assert_eq!(shell("cat /etc/machine-id"), machine_id);
    let logs = client.tool("workspace_logs", id.clone()).json();
    assert!(logs["console"].is_string(), "{logs}");
    // What is not exactly what stands ready is made.
    let other = client.tool("workspace_create", json!({ "memory_mb": 320 })).json();
    assert_eq!(other["from_pool"], false);
    for workspace in made.iter().chain([&other]) {
        client.tool("workspace_destroy", json!({ "workspace_id": workspace["workspace_id"] }));
    }
}

#[test]
fn a_pool_is_gone_with_its_daemon_and_swept_after_a_crash() {
    drop(host_or_skip!());
    let host = pooled();
    let client = greeted(&host);
    eventually("a machine stands ready", Duration::from_secs(110), || host.machines().len() == 1);
    let before = host.machines();
    host.kill_daemon();
    drop(client);
    let client = greeted(&host);
    eventually("the old one is swept and another made", Duration::from_secs(110), || {
        let now = host.machines();
        now.len() == 1 && now != before
    });
    assert_eq!(client.tool("workspace_list", json!({})).json(), json!([]));
    drop(client);
    host.stop_daemon();
    eventually("nothing is left", Duration::from_secs(60), || host.machines().is_empty());
}
