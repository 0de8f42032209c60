//! Defaults of a swarm, and arguments that override them.

use serde_json::{Value, json};

use crate::support::{Client, World};
use crate::{compact, connected, create};

/// Number of checks of the daemon's state for a worker that should not exist.
const LOOKS: usize = 50;

/// A session with a prepared workspace `gold` that has a snapshot `golden`.
async fn prepared() -> (World, Client) {
    let (world, mut client) = connected().await;
    compact(&client.call("workspace_prepare", json!({"name": "gold"})).await);
    (world, client)
}

fn swarm(commands: &[&str], more: Value) -> Value {
    let task = |(at, command): (usize, &&str)| json!({"name": format!("t{at}"), "command": command});
    let tasks: Vec<Value> = commands.iter().enumerate().map(task).collect();
    let mut arguments = json!({"golden_workspace": "gold", "snapshot_name": "golden", "tasks": tasks});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    arguments
}

async fn begin(client: &mut Client, id: &str, arguments: Value) {
    let params = json!({"name": "swarm_run", "arguments": arguments});
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    client.send(&call.to_string()).await;
}

async fn workspaces(client: &mut Client) -> usize {
    compact(&client.call("workspace_list", json!({})).await).as_array().unwrap().len()
}

#[tokio::test]
async fn swarm_runs_four_workers_by_default() {
    let (world, mut client) = prepared().await;
    for (more, expected) in [(json!({}), 4), (json!({"max_parallel": 2}), 2), (json!({"max_parallel": 6}), 6)]
    {
        begin(&mut client, "swarm", swarm(&["wait"; 8], more)).await;
        world.vms.waiting_commands(expected).await;
        for _ in 0..LOOKS {
            assert_eq!(workspaces(&mut client).await, 1 + expected, "with the golden one");
        }
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": "swarm"}});
        client.send(&cancelled.to_string()).await;
        world.vms.waiting_commands(0).await;
        while workspaces(&mut client).await > 1 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn workers_inherit_the_golden_policy_unless_overridden() {
    let (_world, mut client) = prepared().await;
    let open = json!({"workspace_id": "gold", "allow_internet": true});
    compact(&client.call("network_policy", open).await);
    create(&mut client, "shut").await;
    let shut = json!({"workspace_id": "shut", "action": "create", "name": "golden"});
    compact(&client.call("snapshot", shut).await);
    for (golden, given, expected) in [
        ("gold", None, true),
        ("gold", Some(false), false),
        ("shut", None, false),
        ("shut", Some(true), true),
    ] {
        let mut arguments = swarm(&["echo x"], json!({"golden_workspace": golden, "cleanup": false}));
        if let Some(allow) = given {
            arguments["allow_internet"] = allow.into();
        }
        let ran = compact(&client.call("swarm_run", arguments).await);
        let worker = &ran["tasks"][0]["workspace_id"];
        let info = compact(&client.call("workspace_info", json!({"workspace_id": worker})).await);
        assert_eq!(info["network"]["allow_internet"], expected, "{golden} {given:?}");
    }
}

#[tokio::test]
async fn swarm_task_timeout_follows_the_call() {
    let (_world, mut client) = prepared().await;
    for (more, limit) in [(json!({}), "limit 600"), (json!({"timeout_secs": 9}), "limit 9")] {
        let ran = compact(&client.call("swarm_run", swarm(&[limit], more)).await);
        assert_eq!(ran["tasks"][0]["success"], true, "{ran}");
    }
    let late = client.call("swarm_run", swarm(&["late"], json!({"timeout_secs": 9}))).await;
    let task = &compact(&late)["tasks"][0];
    assert!(task["stderr"].as_str().unwrap().contains("timed out after 9 s"), "{task}");
}

#[tokio::test]
async fn swarm_merge_target_defaults_to_golden_workspace() {
    let (_world, mut client) = prepared().await;
    let other = create(&mut client, "other").await;
    let gold = compact(&client.call("workspace_info", json!({"workspace_id": "gold"})).await);
    for (more, target) in
        [(json!({}), &gold["workspace_id"]), (json!({"merge_target": "other"}), &json!(other))]
    {
        let mut arguments = swarm(&["echo x"], more);
        arguments["merge_strategy"] = "cherry-pick".into();
        let merge = &compact(&client.call("swarm_run", arguments).await)["merge"];
        assert_eq!((&merge["strategy"], &merge["target_workspace"]), (&json!("cherry-pick"), target));
    }
}

#[tokio::test]
async fn concurrent_swarms_do_not_collide() {
    let (_world, mut client) = prepared().await;
    let mut ids = Vec::new();
    for id in ["a", "b", "c"] {
        begin(&mut client, id, swarm(&["echo x", "echo y"], json!({}))).await;
    }
    for _ in 0..3 {
        let answer = client.receive().await;
        let ran = compact(&answer["result"]);
        assert_eq!(ran["summary"]["succeeded"], 2, "{ran}");
        ids.push(ran["swarm_id"].as_str().unwrap().to_owned());
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "{ids:?}");
}
