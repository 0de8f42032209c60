//! Ports of the host that lead into a workspace.

use std::time::Duration;

use agentiso_e2e::guest::{address, attempt, policy, serve};
use agentiso_e2e::internet::HOST;
use agentiso_e2e::internet_or_skip;
use agentiso_testkit::{eventually, host_or_skip};
use serde_json::json;

use crate::Backend;

/// A forward listens on the host's loopback only, cannot take the system's ports or agentiso's own, and stays until it
/// is removed: across policy changes, a stop and a start, and a restart of the daemon.
pub(crate) fn forward_listens_on_loopback_and_persists(backend: Backend) {
    let internet = internet_or_skip!();
    let test = host_or_skip!(internet.host_options(backend.config()));
    let client = test.client();
    let ws = client.workspace();
    serve(&ws, 8080, "0.0.0.0");
    let add = |arguments| ws.tool("port_forward", arguments).json();
    let added = add(json!({"action": "add", "guest_port": 8080}));
    let port = added["host_port"].as_u64().unwrap();
    let greets = || internet.greeting_at_host("127.0.0.1", port) == "hello\n";
    eventually("the server answers", Duration::from_secs(20), greets);
    // A guest server that listens on the workspace's address only is reached as well.
    serve(&ws, 8081, &address(&ws));
    let own = add(json!({"action": "add", "guest_port": 8081}))["host_port"].as_u64().unwrap();
    let greets_there = || internet.greeting_at_host("127.0.0.1", own) == "hello\n";
    eventually("the server at its own address answers", Duration::from_secs(20), greets_there);
    assert_eq!(internet.greeting_at_host(HOST, port), "refused", "not on the host's other addresses");
    assert_eq!(internet.greeting_from_outside(HOST, port), "refused", "nor from outside");
    let other =
        client.workspace_with(json!({"network_policy": {"allow_internet": true, "allow_inter_vm": true}}));
    for address in [HOST, "10.42.0.1"] {
        attempt(&other, json!(["say", address, port, ""])).is_refused();
    }

    let refused = |host_port: u16| {
        let wanted = json!({"action": "add", "guest_port": 81, "host_port": host_port});
        ws.tool_error("port_forward", wanted).code().to_owned()
    };
    assert_eq!(refused(443), "invalid_arguments");
    assert_eq!(refused(7070), "bad_port");
    assert_eq!(refused(u16::try_from(port).unwrap()), "port_in_use");

    policy(&ws, json!({"allow_internet": true}));
    policy(&ws, json!({"allow_internet": false}));
    assert!(greets(), "after changes of the policy");
    ws.stop();
    assert!(!greets());
    ws.start();
    serve(&ws, 8080, "0.0.0.0");
    eventually("it answers after a start", Duration::from_secs(20), greets);
    test.kill_daemon();
    let next = test.client();
    next.tool("workspace_adopt", json!({}));
    eventually("it answers with another daemon", Duration::from_secs(30), greets);
    next.tool("workspace_destroy", json!({"workspace_id": ws.id}));
    assert_eq!(internet.greeting_at_host("127.0.0.1", port), "refused");
}
