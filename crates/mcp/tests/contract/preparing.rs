//! Workspaces that others start from: names of prepared ones, what forks inherit, and what workers of a swarm receive.

use serde_json::{Value, json};

use crate::support::{self, Client};
use crate::{another, code, compact, connected, create, text};

#[tokio::test]
async fn prepare_numbers_a_taken_name_up_to_six() {
    let (world, mut owner) = connected().await;
    for name in ["gold", "gold-2", "gold-3", "gold-4", "gold-5"] {
        create(&mut owner, name).await;
    }
    let mut client = another(&world).await;
    let made = compact(&client.call("workspace_prepare", json!({"name": "gold"})).await);
    assert_eq!(made["name"], "gold-6");
    let again = compact(&client.call("workspace_prepare", json!({"name": "gold"})).await);
    assert_eq!((&again["workspace_id"], &again["reused_existing"]), (&made["workspace_id"], &json!(true)));
    let mut third = another(&world).await;
    let refused = third.call("workspace_prepare", json!({"name": "gold"})).await;
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(text(&refused).contains("gold"), "{refused}");
}

#[tokio::test]
async fn prepare_reuses_workspaces_of_ended_sessions() {
    let (world, mut first) = connected().await;
    let made = compact(&first.call("workspace_prepare", json!({"name": "gold"})).await);
    let bare = create(&mut first, "bare").await;
    first.call("workspace_stop", json!({"workspace_id": "bare"})).await;
    first.close().await;
    let mut next = another(&world).await;
    let again = compact(&next.call("workspace_prepare", json!({"name": "gold"})).await);
    assert_eq!((&again["workspace_id"], &again["reused_existing"]), (&made["workspace_id"], &json!(true)));
    // A workspace without that snapshot is started and prepared.
    let used = compact(&next.call("workspace_prepare", json!({"name": "bare"})).await);
    assert_eq!((&used["workspace_id"], &used["snapshot_name"]), (&json!(bare), &json!("golden")));
    let info = compact(&next.call("workspace_info", json!({"workspace_id": "bare"})).await);
    assert_eq!((&info["state"], &info["snapshots"][0]["name"]), (&json!("running"), &json!("golden")));
}

#[tokio::test]
async fn prepare_takes_image_and_size_from_configuration() {
    let config = "[resources]\ndefault_vcpus = 1\ndefault_memory_mb = 256\ndefault_disk_gb = 3\n";
    let world = support::world_with(config).await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    for (name, timeout, command) in [("a", Value::Null, "limit 300"), ("b", json!(7), "limit 7")] {
        let prepare = json!({"name": name, "setup_commands": [command], "timeout_secs": timeout});
        compact(&client.call("workspace_prepare", prepare).await);
    }
    let info = compact(&client.call("workspace_info", json!({"workspace_id": "a"})).await);
    assert_eq!(info["resources"], json!({"vcpus": 1, "memory_mb": 256, "disk_gb": 3}));
    assert_eq!(info["base_image"], "debian-dev");
    let world = support::world_with("[storage]\nbase_image = \"nosuch\"\n").await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let refused = client.call("workspace_prepare", json!({"name": "a"})).await;
    assert!(code(&refused) == "no_image" && text(&refused).contains("nosuch"), "{refused}");
}

#[tokio::test]
async fn failed_clone_undoes_only_new_workspaces() {
    let (_world, mut client) = connected().await;
    create(&mut client, "there").await;
    for name in ["new", "there"] {
        let prepare = json!({"name": name, "git_url": "https://git.test/x.git"});
        assert_eq!(code(&client.call("workspace_prepare", prepare).await), "timed_out");
    }
    let left = compact(&client.call("workspace_list", json!({})).await);
    assert_eq!((left.as_array().unwrap().len(), &left[0]["name"]), (1, &json!("there")));
}

#[tokio::test]
async fn fork_inherits_size_and_policy_only() {
    let (_world, mut client) = connected().await;
    let sized = json!({"name": "web", "vcpus": 1, "memory_mb": 256, "disk_gb": 3});
    let source = compact(&client.call("workspace_create", sized).await);
    let policy = json!({"workspace_id": "web", "allow_internet": true, "allow_inter_vm": true, "allowed_ports": [80],
        "allow_domains": ["example.com"]});
    client.call("network_policy", policy).await;
    client.call("port_forward", json!({"workspace_id": "web", "action": "add", "guest_port": 80})).await;
    client.call("snapshot", json!({"workspace_id": "web", "action": "create", "name": "s"})).await;
    client.call("workspace_stop", json!({"workspace_id": "web"})).await;
    let fork = json!({"workspace_id": "web", "snapshot_name": "s", "new_name": "kid"});
    let fork = compact(&client.call("workspace_fork", fork).await);
    assert_eq!((&fork["state"], &fork["name"]), (&json!("running"), &json!("kid")));
    assert_ne!(fork["ip"], source["ip"]);
    let mut info =
        async |name: &str| compact(&client.call("workspace_info", json!({"workspace_id": name})).await);
    let (web, kid) = (info("web").await, info("kid").await);
    assert_eq!((&kid["resources"], &kid["base_image"]), (&web["resources"], &web["base_image"]));
    for key in ["allow_internet", "allow_inter_vm", "allowed_ports", "allow_domains"] {
        assert_eq!(kid["network"][key], web["network"][key], "{key}");
    }
    assert_eq!((&kid["network"]["port_forwards"], &kid["snapshots"]), (&json!([]), &json!([])));
    assert_eq!(web["network"]["port_forwards"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn snapshots_are_limited_in_number() {
    let world =
        support::world_with("[resources]\nmax_snapshots_per_workspace = 2\n[rate_limit]\nenabled = false\n")
            .await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    create(&mut client, "web").await;
    for (name, expected) in [("a", ""), ("b", ""), ("c", "too_many_snapshots")] {
        let made =
            client.call("snapshot", json!({"workspace_id": "web", "action": "create", "name": name})).await;
        assert_eq!(code(&made), expected, "{made}");
    }
    // The default of the contract, if the configuration sets none.
    let (_world, mut client) = connected().await;
    create(&mut client, "web").await;
    for number in 1..=101 {
        let made = json!({"workspace_id": "web", "action": "create", "name": format!("s{number}")});
        let expected = if number == 101 { "too_many_snapshots" } else { "" };
        assert_eq!(code(&client.call("snapshot", made).await), expected, "{number}");
    }
}

/// Runs a swarm of one worker, which is kept, with queries to the vault; returns the worker's id.
async fn worker_with(client: &mut Client, questions: Value) -> String {
    client.call("workspace_prepare", json!({"name": "gold"})).await;
    let swarm = json!({"golden_workspace": "gold", "snapshot_name": "golden", "cleanup": false,
        "tasks": [{"name": "a", "command": "echo x"}], "vault_context": questions});
    let ran = compact(&client.call("swarm_run", swarm).await);
    assert_eq!(ran["summary"]["succeeded"], 1, "{ran}");
    ran["tasks"][0]["workspace_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn workers_receive_vault_context() {
    let (_world, mut client) = connected().await;
    let note = |path: &str, content: &str| json!({"action": "write", "path": path, "content": content});
    client.call("vault", note("design/plan.md", "# Plan\nuse sqlite\n")).await;
    client.call("vault", note("notes.md", "before\nthe needle\nafter\n")).await;
    let questions = json!([{"query": "needle"}, {"kind": "read", "query": "design/plan.md"},
        {"kind": "read", "query": "nosuch.md"}, {"kind": "search", "query": "nowhere to be found"}]);
    let worker = worker_with(&mut client, questions).await;
    let read = json!({"workspace_id": worker, "path": "/tmp/.vault-context"});
    let told = client.call("file_read", read).await;
    for part in ["Project Knowledge Base", "notes.md", "line 2", "before\nthe needle\nafter", "use sqlite"] {
        assert!(text(&told).contains(part), "{part} is not in {told}");
    }
    assert!(!text(&told).contains("nowhere") && !text(&told).contains("nosuch"), "{told}");
}

#[tokio::test]
async fn workers_run_without_vault_context() {
    for world in [support::world_without_vault().await, support::world().await] {
        let mut client = Client::initialized(world.session(), "full", false).await;
        let worker = worker_with(&mut client, json!([{"query": "needle"}])).await;
        let read = json!({"workspace_id": worker, "path": "/tmp/.vault-context"});
        assert_eq!(code(&client.call("file_read", read).await), "not_found");
    }
}
