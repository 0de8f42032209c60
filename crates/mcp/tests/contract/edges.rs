//! Limits of the contract: the last allowed value and the first refused one.

use serde_json::{Value, json};

use crate::support::{self, Client};
use crate::{code, compact, connected, create, text};

async fn allowed(client: &mut Client, tool: &str, arguments: Value) {
    let answer = client.call(tool, arguments.clone()).await;
    assert_eq!(code(&answer), "", "{tool}: {answer}");
}

/// Expects the call to be refused because of its arguments.
async fn refused(client: &mut Client, tool: &str, arguments: Value) {
    let answer = client.call(tool, arguments).await;
    assert_eq!(code(&answer), "invalid_arguments", "{tool}: {answer}");
}

#[tokio::test]
async fn name_alphabets_and_lengths_match_the_contract() {
    let (_world, mut client) = connected().await;
    let sized = |name: String| json!({"name": name, "memory_mb": 128, "disk_gb": 1});
    allowed(&mut client, "workspace_create", sized("Az0._-".to_owned())).await;
    allowed(&mut client, "workspace_create", sized("x".repeat(128))).await;
    for bad in ["x".repeat(129), String::new(), "a b".to_owned(), "a/b".to_owned(), "ä".to_owned()] {
        refused(&mut client, "workspace_create", sized(bad.clone())).await;
        refused(&mut client, "workspace_prepare", json!({"name": bad})).await;
        let snapshot = json!({"workspace_id": "Az0._-", "action": "create", "name": bad});
        refused(&mut client, "snapshot", snapshot).await;
        let fork = json!({"workspace_id": "Az0._-", "snapshot_name": "s", "count": 2, "name_prefix": bad});
        refused(&mut client, "workspace_fork", fork).await;
        let fork = json!({"workspace_id": "Az0._-", "snapshot_name": "s", "new_name": bad});
        refused(&mut client, "workspace_fork", fork).await;
    }
    for image in ["a..b", "../x", "", &"x".repeat(129)] {
        refused(&mut client, "workspace_create", json!({"base_image": image})).await;
    }
    let same = client.call("workspace_create", sized("Az0._-".to_owned())).await;
    assert_eq!(code(&same), "name_taken", "{same}");

    let team = |name: &str, role: &str| json!({"action": "create", "name": name, "roles": [{"name": role, "role": "r"}]});
    allowed(&mut client, "team", team(&"t".repeat(64), &"r".repeat(64))).await;
    for bad in ["", "-a", "a-", "a.b", "a_b", "a b", &"x".repeat(65)] {
        refused(&mut client, "team", team(bad, "r")).await;
        refused(&mut client, "team", team("t", bad)).await;
    }
}

#[tokio::test]
async fn workspace_sizes_stay_within_their_limits() {
    let (_world, mut client) = connected().await;
    for (key, least, most) in [("vcpus", 1, 8), ("memory_mb", 128, 8192), ("disk_gb", 1, 100)] {
        for good in [least, most] {
            let made =
                client.call("workspace_create", json!({"name": "w", "memory_mb": 128, key: good})).await;
            assert_eq!(compact(&made)["resources"][key], good);
            allowed(&mut client, "workspace_destroy", json!({"workspace_id": "w"})).await;
        }
        for bad in [least - 1, most + 1] {
            let answer = client.call("workspace_create", json!({ key: bad })).await;
            assert_eq!(code(&answer), "invalid_arguments", "{answer}");
            let range = format!("between {least} and {most}");
            assert!(text(&answer).contains(key) && text(&answer).contains(&range), "{answer}");
        }
    }
}

#[tokio::test]
async fn address_is_reused_after_workspace_is_destroyed() {
    // Five addresses besides the gateway.
    let world = support::world_with("[network]\nsubnet_prefix = 29\n[rate_limit]\nenabled = false\n").await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let sized = |name: &str| json!({"name": name, "memory_mb": 128, "disk_gb": 1});
    for (number, name) in (2..).zip(["a", "b", "c", "d", "e"]) {
        let made = compact(&client.call("workspace_create", sized(name)).await);
        assert_eq!(made["ip"], format!("10.42.0.{number}"));
    }
    let full = client.call("workspace_create", sized("f")).await;
    assert_eq!(full["isError"], true, "{full}");
    assert!(text(&full).contains("10.42.0.1/29"), "{full}");
    allowed(&mut client, "workspace_destroy", json!({"workspace_id": "c"})).await;
    assert_eq!(compact(&client.call("workspace_create", sized("f")).await)["ip"], "10.42.0.4");
}

#[tokio::test]
async fn lists_are_refused_beyond_their_limit() {
    let (_world, mut client) = connected().await;
    create(&mut client, "web").await;
    allowed(&mut client, "snapshot", json!({"workspace_id": "web", "action": "create", "name": "s"})).await;
    let parallel = |count: usize| json!({"workspace_ids": vec!["web"; count], "commands": "echo x"});
    allowed(&mut client, "exec_parallel", parallel(20)).await;
    for count in [0, 21] {
        refused(&mut client, "exec_parallel", parallel(count)).await;
    }
    let fork = |count: u32| json!({"workspace_id": "web", "snapshot_name": "s", "count": count});
    for count in [0, 21] {
        refused(&mut client, "workspace_fork", fork(count)).await;
    }
    let many = client.call("workspace_fork", fork(20)).await;
    assert_eq!(code(&many), "quota_exceeded", "twenty may be asked for: {many}");

    let swarm = |count: usize| {
        let tasks: Vec<Value> =
            (0..count).map(|n| json!({"name": format!("t{n:02}"), "command": "echo x"})).collect();
        json!({"golden_workspace": "web", "snapshot_name": "s", "tasks": tasks})
    };
    allowed(&mut client, "swarm_run", swarm(20)).await;
    for count in [0, 21] {
        refused(&mut client, "swarm_run", swarm(count)).await;
    }
    for (parallel, good) in [(1, true), (20, true), (0, false), (21, false)] {
        let mut arguments = swarm(1);
        arguments["max_parallel"] = parallel.into();
        let answer = client.call("swarm_run", arguments).await;
        assert_eq!(code(&answer).is_empty(), good, "{parallel}: {answer}");
    }
    for (bytes, good) in [(1024 * 1024, true), (1024 * 1024 + 1, false)] {
        let mut arguments = swarm(1);
        arguments["shared_context"] = "x".repeat(bytes).into();
        let params = json!({"name": "swarm_run", "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": bytes, "method": "tools/call", "params": params});
        let answer = client.send_and_receive(&call.to_string()).await;
        assert_eq!(code(&answer["result"]).is_empty(), good, "{bytes}");
    }
    refused(
        &mut client,
        "workspace_merge",
        json!({"source_workspaces": [], "target_workspace": "web", "strategy": "sequential"}),
    )
    .await;
}

#[tokio::test]
async fn reserved_ports_cannot_be_forwarded() {
    let (_world, mut client) = connected().await;
    create(&mut client, "web").await;
    let forward = |guest: u64, host: Option<u64>| {
        let mut arguments = json!({"workspace_id": "web", "action": "add", "guest_port": guest});
        if let Some(host) = host {
            arguments["host_port"] = host.into();
        }
        arguments
    };
    for guest in [0, 65_536] {
        refused(&mut client, "port_forward", forward(guest, None)).await;
    }
    for host in [0, 80, 1023, 65_536] {
        refused(&mut client, "port_forward", forward(80, Some(host))).await;
    }
    // The ports of the dashboard and of the MCP bridge.
    for host in [7070, 3100] {
        let answer = client.call("port_forward", forward(80, Some(host))).await;
        assert_eq!(code(&answer), "bad_port", "{answer}");
    }
    for guest in [1, 22, 65_535] {
        let added = compact(&client.call("port_forward", forward(guest, None)).await);
        assert!(added["host_port"].as_u64().unwrap() >= 1024 && added["guest_port"] == guest, "{added}");
    }
    let unknown = client
        .call("port_forward", json!({"workspace_id": "web", "action": "remove", "guest_port": 9}))
        .await;
    assert_eq!(unknown["isError"], true, "{unknown}");

    let moved = "[dashboard]\nport = 8070\n[mcp_bridge]\nport = 8100\n[rate_limit]\nenabled = false\n";
    let world = support::world_with(moved).await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    create(&mut client, "web").await;
    for host in [8070, 8100] {
        let answer = client.call("port_forward", forward(80, Some(host))).await;
        assert_eq!(code(&answer), "bad_port", "where the configuration has them: {answer}");
    }
}

#[tokio::test]
async fn note_and_message_lengths_match_the_contract() {
    let (_world, mut client) = connected().await;
    let write = |bytes: usize| json!({"action": "write", "path": "n.md", "content": "x".repeat(bytes)});
    for (bytes, good) in [(10 << 20, true), ((10 << 20) + 1, false)] {
        let params = json!({"name": "vault", "arguments": write(bytes)});
        let call = json!({"jsonrpc": "2.0", "id": bytes, "method": "tools/call", "params": params});
        let answer = client.send_and_receive(&call.to_string()).await;
        assert_eq!(code(&answer["result"]).is_empty(), good, "{bytes}");
    }
    let batch = |count: usize| json!({"action": "batch_read", "paths": vec!["n.md"; count]});
    allowed(&mut client, "vault", batch(10)).await;
    refused(&mut client, "vault", batch(11)).await;
    allowed(
        &mut client,
        "team",
        json!({"action": "create", "name": "t", "roles": [{"name": "a", "role": "r"}]}),
    )
    .await;
    let message = |to: &str, bytes: usize| json!({"action": "message", "name": "t", "agent": "a", "to": to, "content": "x".repeat(bytes)});
    let alone = compact(&client.call("team", message("*", 256 * 1024)).await);
    assert_eq!(alone["status"], "delivered", "though nobody else is there");
    refused(&mut client, "team", message("*", 256 * 1024 + 1)).await;
    let unknown = client.call("team", message("nobody", 1)).await;
    assert_eq!(code(&unknown), "not_a_member", "{unknown}");
}
