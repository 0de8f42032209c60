//! Prepared workspaces and swarms over VMs that exist in memory: their answers, and that nothing remains of them after
//! a failure or a cancellation.

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Client, World};

async fn connected() -> (World, Client) {
    let world = support::world().await;
    let client = Client::initialized(world.session(), "full", false).await;
    (world, client)
}

/// A session with a workspace `gold` that has a snapshot `golden`.
async fn prepared() -> (World, Client) {
    let (world, mut client) = connected().await;
    let made = client.call("workspace_prepare", json!({"name": "gold", "setup_commands": ["echo x"]})).await;
    assert_eq!(made["isError"], false, "{made}");
    (world, client)
}

fn code(result: &Value) -> &Value {
    &result["structuredContent"]["code"]
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

async fn names(client: &mut Client) -> Vec<String> {
    let listed = client.call("workspace_list", json!({})).await;
    let list = listed["structuredContent"]["workspaces"].as_array().unwrap().clone();
    list.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until only the expected workspaces remain.
async fn left(client: &mut Client, expected: &[&str]) {
    let gone = async {
        while names(client).await != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the workers go");
}

fn swarm(tasks: Value) -> Value {
    json!({"golden_workspace": "gold", "snapshot_name": "golden", "tasks": tasks})
}

async fn start(client: &mut Client, id: &str, tool: &str, arguments: Value) {
    let params = json!({"name": tool, "arguments": arguments});
    client
        .send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string())
        .await;
}

async fn cancel(client: &mut Client, id: &str) {
    let params = json!({"requestId": id});
    client
        .send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).to_string())
        .await;
}

#[tokio::test]
async fn prepare_is_idempotent() {
    let (_world, mut client) = connected().await;
    let first = client.call("workspace_prepare", json!({"name": "gold", "setup_commands": ["echo x"]})).await;
    let made = first["structuredContent"].clone();
    assert_eq!((&made["name"], &made["snapshot_name"]), (&json!("gold"), &json!("golden")), "{first}");
    assert!(
        made["snapshot_id"].is_string() && made["ip"].is_string() && made.get("reused_existing").is_none()
    );
    let again = client.call("workspace_prepare", json!({"name": "gold", "setup_commands": ["nosuch"]})).await;
    let again = &again["structuredContent"];
    assert_eq!((&again["workspace_id"], &again["reused_existing"]), (&made["workspace_id"], &json!(true)));
    let info = client.call("workspace_info", json!({"workspace_id": "gold"})).await;
    assert_eq!(info["structuredContent"]["network"]["allow_internet"], false, "it is closed again");
    assert_eq!(info["structuredContent"]["state"], "running");
}

#[tokio::test]
async fn failed_setup_undoes_only_new_workspaces() {
    let (_world, mut client) = connected().await;
    let commands = json!(["echo fine", "nosuch", "echo never"]);
    let failed = client.call("workspace_prepare", json!({"name": "gold", "setup_commands": commands})).await;
    assert_eq!(code(&failed), "setup_failed");
    assert!(text(&failed).contains("2/3") && text(&failed).contains("exit code 127"), "{failed}");
    assert!(names(&mut client).await.is_empty());
    client.call("workspace_create", json!({"name": "gold"})).await;
    client.call("workspace_stop", json!({"workspace_id": "gold"})).await;
    let failed = client.call("workspace_prepare", json!({"name": "gold", "setup_commands": commands})).await;
    assert_eq!(code(&failed), "setup_failed");
    assert_eq!(names(&mut client).await, ["gold"]);
    let made = client.call("workspace_prepare", json!({"name": "gold"})).await;
    assert_eq!(made["structuredContent"]["snapshot_name"], "golden", "{made}");
    for bad in [
        json!({"name": "../x"}),
        json!({"name": "x", "git_url": "file:///etc"}),
        json!({"name": "x", "git_url": "-u"}),
    ] {
        assert_eq!(code(&client.call("workspace_prepare", bad).await), "invalid_arguments");
    }
    let image = client.call("workspace_prepare", json!({"name": "x", "base_image": "nosuch"})).await;
    assert_eq!(code(&image), "no_image");
}

#[tokio::test]
async fn prepare_reserves_its_name_until_it_is_cancelled() {
    let (world, mut client) = connected().await;
    start(&mut client, "one", "workspace_prepare", json!({"name": "gold", "setup_commands": ["wait"]})).await;
    world.vms.waiting_commands(1).await;
    let second = client.call("workspace_prepare", json!({"name": "gold"})).await;
    assert_eq!(code(&second), "prepare_in_progress");
    cancel(&mut client, "one").await;
    world.vms.waiting_commands(0).await;
    left(&mut client, &[]).await;
    // The name is free a moment after the workspace is gone.
    let again = async {
        while client.call("workspace_prepare", json!({"name": "gold"})).await["isError"] == true {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again).await.expect("the name is free");
}

#[tokio::test]
async fn prepare_numbers_a_name_of_another_session() {
    let (world, mut client) = prepared().await;
    let mut other = Client::initialized(world.session(), "full", false).await;
    let made = other.call("workspace_prepare", json!({"name": "gold"})).await;
    assert_eq!(made["structuredContent"]["name"], "gold-2", "{made}");
    let again = other.call("workspace_prepare", json!({"name": "gold"})).await;
    assert_eq!(again["structuredContent"]["workspace_id"], made["structuredContent"]["workspace_id"]);
    assert_eq!(client.call("workspace_info", json!({"workspace_id": "gold"})).await["isError"], false);
}

#[tokio::test]
async fn swarm_answers_every_task_and_leaves_no_worker() {
    let (_world, mut client) = prepared().await;
    let tasks = json!([
        {"name": "b", "command": "echo two"}, {"name": "a", "command": "echo one"}, {"name": "c", "command": "nosuch"},
        {"name": "d", "command": "late"},
    ]);
    let mut arguments = swarm(tasks);
    arguments["max_parallel"] = json!(2);
    let done = client.call("swarm_run", arguments).await;
    let answer = &done["structuredContent"];
    let seen: Vec<_> =
        answer["tasks"].as_array().unwrap().iter().map(|task| task["name"].as_str().unwrap()).collect();
    assert_eq!(seen, ["a", "b", "c", "d"]);
    assert_eq!(
        (&answer["tasks"][0]["stdout"], &answer["tasks"][0]["success"]),
        (&json!("one\n"), &json!(true))
    );
    assert_eq!(
        (&answer["tasks"][2]["exit_code"], &answer["tasks"][2]["success"]),
        (&json!(127), &json!(false))
    );
    let late = &answer["tasks"][3];
    assert!(
        late["exit_code"] == -1 && late["stderr"].as_str().unwrap().contains("timed out after 600 s"),
        "{late}"
    );
    let summary = &answer["summary"];
    let counts =
        ["total_tasks", "succeeded", "failed", "workers_destroyed"].map(|key| summary[key].as_u64().unwrap());
    assert_eq!((counts, &summary["mcp_bridge"]), ([4, 2, 2, 4], &json!(false)));
    assert!(answer.get("merge").is_none() && answer["swarm_id"].as_str().unwrap().starts_with("swarm-20"));
    assert_eq!(names(&mut client).await, ["gold"]);
}

#[tokio::test]
async fn workers_are_kept_without_cleanup() {
    let (_world, mut client) = prepared().await;
    let mut arguments = swarm(json!([{"name": "a", "command": "echo x"}]));
    arguments["cleanup"] = json!(false);
    arguments["shared_context"] = json!("for all");
    arguments["allow_internet"] = json!(false);
    let done = client.call("swarm_run", arguments).await["structuredContent"].clone();
    let worker = done["tasks"][0]["workspace_id"].as_str().unwrap();
    assert_eq!(done["summary"]["workers_destroyed"], 0);
    let read = json!({"workspace_id": worker, "path": "/tmp/.shared-context"});
    assert_eq!(text(&client.call("file_read", read).await), "for all");
    let info =
        client.call("workspace_info", json!({"workspace_id": worker})).await["structuredContent"].clone();
    assert_eq!((&info["network"]["allow_internet"], &info["state"]), (&json!(false), &json!("running")));
    let expected = format!("{}-a", done["swarm_id"].as_str().unwrap());
    assert_eq!(info["name"], expected);
}

#[tokio::test]
async fn invalid_swarm_is_refused_before_any_fork() {
    let (_world, mut client) = prepared().await;
    let task = |name: &str| json!({"name": name, "command": "echo x"});
    let many: Vec<Value> = (0..21).map(|n| task(&format!("t{n}"))).collect();
    let change = |key: &str, value: Value| {
        let mut arguments = swarm(json!([task("a")]));
        arguments[key] = value;
        arguments
    };
    for (arguments, expected) in [
        (swarm(json!([])), "invalid_arguments"),
        (swarm(json!(many)), "invalid_arguments"),
        (swarm(json!([task("a"), task("a")])), "invalid_arguments"),
        (swarm(json!([task("../a")])), "invalid_arguments"),
        (swarm(json!([{"name": "a", "command": "x", "env": {"LD_PRELOAD": "x"}}])), "invalid_arguments"),
        (change("shared_context", json!("x".repeat(1024 * 1024 + 1))), "invalid_arguments"),
        (change("mcp_bridge", json!(true)), "bridge_disabled"),
        (change("merge_strategy", json!("octopus")), "invalid_arguments"),
        (change("merge_target", json!("gold")), "invalid_arguments"),
        (change("golden_workspace", json!("nosuch")), "workspace_not_found"),
        (change("snapshot_name", json!("nosuch")), "snapshot_not_found"),
    ] {
        let refused = client.call("swarm_run", arguments).await;
        assert_eq!(code(&refused), expected, "{refused}");
    }
    let mut target = change("merge_strategy", json!("sequential"));
    target["merge_target"] = json!("nosuch");
    assert_eq!(code(&client.call("swarm_run", target).await), "workspace_not_found");
    client.call("workspace_stop", json!({"workspace_id": "gold"})).await;
    let stopped = client.call("swarm_run", change("merge_strategy", json!("sequential"))).await;
    assert_eq!(code(&stopped), "wrong_state", "its own golden workspace is the target: {stopped}");
    assert_eq!(names(&mut client).await, ["gold"]);
}

#[tokio::test]
async fn swarm_answer_reports_a_failed_merge() {
    let (_world, mut client) = prepared().await;
    let mut arguments = swarm(json!([{"name": "a", "command": "nosuch"}]));
    arguments["merge_strategy"] = json!("sequential");
    let none = client.call("swarm_run", arguments.clone()).await["structuredContent"]["merge"].clone();
    assert!(none["error"].as_str().unwrap().contains("no task succeeded"), "{none}");
    // The fake guests have no git.
    arguments["tasks"][0]["command"] = json!("echo x");
    let failed = client.call("swarm_run", arguments).await["structuredContent"]["merge"].clone();
    assert!(failed["error"].is_string() && failed["strategy"] == "sequential", "{failed}");
    assert_eq!(names(&mut client).await, ["gold"]);
}

#[tokio::test]
async fn oversized_swarm_runs_tasks_within_the_quota() {
    let (_world, mut client) = prepared().await;
    let tasks: Vec<Value> =
        (0..12).map(|n| json!({"name": format!("t{n:02}"), "command": "echo x"})).collect();
    let done = client.call("swarm_run", swarm(json!(tasks))).await["structuredContent"].clone();
    assert_eq!(done["summary"]["total_tasks"], 12);
    let failed: Vec<&Value> =
        done["tasks"].as_array().unwrap().iter().filter(|task| task["success"] == false).collect();
    assert!(!failed.is_empty() && failed.len() < 12, "{done}");
    for task in failed {
        assert!(task["workspace_id"].is_null() && task["exit_code"] == -1, "{task}");
        assert!(task["stderr"].as_str().unwrap().contains("quota"), "{task}");
    }
    assert_eq!(names(&mut client).await, ["gold"]);
}

#[tokio::test]
async fn cancelled_swarm_leaves_no_worker() {
    let (world, mut client) = prepared().await;
    let tasks = json!([
        {"name": "a", "command": "wait"}, {"name": "b", "command": "wait"}, {"name": "c", "command": "echo x"},
    ]);
    // Cancels while the commands run, also if the workers were to be kept.
    for cleanup in [true, false] {
        let mut arguments = swarm(tasks.clone());
        arguments["cleanup"] = json!(cleanup);
        start(&mut client, "swarm", "swarm_run", arguments).await;
        world.vms.waiting_commands(2).await;
        cancel(&mut client, "swarm").await;
        world.vms.waiting_commands(0).await;
        left(&mut client, &["gold"]).await;
    }
    // Cancels a little earlier or later.
    for step in 0..20u64 {
        start(&mut client, "swarm", "swarm_run", swarm(tasks.clone())).await;
        tokio::time::sleep(Duration::from_micros(step * 150)).await;
        cancel(&mut client, "swarm").await;
        left(&mut client, &["gold"]).await;
    }
}

#[tokio::test]
async fn hangup_during_swarm_leaves_no_worker() {
    let (world, mut client) = prepared().await;
    start(&mut client, "swarm", "swarm_run", swarm(json!([{"name": "a", "command": "wait"}]))).await;
    world.vms.waiting_commands(1).await;
    client.close().await;
    world.vms.waiting_commands(0).await;
    let mut other = Client::initialized(world.session(), "full", false).await;
    left(&mut other, &["gold"]).await;
}

#[tokio::test]
async fn unanswered_clone_times_out_after_300_seconds() {
    let (_world, mut client) = prepared().await;
    let clone = json!({"workspace_id": "gold", "url": "https://git.test/x.git", "path": "/root/x"});
    let late = client.call("git_clone", clone).await;
    assert_eq!((code(&late), &late["structuredContent"]["retryable"]), (&json!("timed_out"), &json!(true)));
    assert!(text(&late).contains("git clone") && text(&late).contains("timed out after 300 s"), "{late}");
}

#[tokio::test]
async fn unanswered_push_times_out_after_120_seconds() {
    let (_world, mut client) = prepared().await;
    let late = client.call("git_push", json!({"workspace_id": "gold"})).await;
    assert_eq!(code(&late), "timed_out", "{late}");
    assert!(text(&late).contains("timed out after 120 s"), "{late}");
    let other = client.call("git_push", json!({"workspace_id": "gold", "timeout_secs": 121})).await;
    assert_eq!(code(&other), "git_failed", "this world answers no other push: {other}");
}

#[tokio::test]
async fn merge_refuses_stopped_workspaces() {
    let (_world, mut client) = prepared().await;
    client.call("workspace_create", json!({"name": "off"})).await;
    client.call("workspace_stop", json!({"workspace_id": "off"})).await;
    for (source, target) in [("off", "gold"), ("gold", "off")] {
        let merge =
            json!({"source_workspaces": [source], "target_workspace": target, "strategy": "sequential"});
        let refused = client.call("workspace_merge", merge).await;
        assert_eq!(code(&refused), "wrong_state", "{refused}");
        assert!(text(&refused).contains("off"), "{refused}");
    }
}

#[tokio::test]
async fn git_tools_refuse_bad_names_without_leaking_credentials() {
    let (_world, mut client) = prepared().await;
    let on = |mut arguments: Value| {
        arguments["workspace_id"] = json!("gold");
        arguments
    };
    for (tool, arguments) in [
        ("git_clone", json!({"url": "https://user:hunter22@h/x;y"})),
        ("git_clone", json!({"url": "https://h/x", "branch": "-b"})),
        ("git_clone", json!({"url": "https://h/x", "path": "relative"})),
        ("git_push", json!({"remote": "--receive-pack=x"})),
        ("git_push", json!({"branch": "a:b"})),
        ("git_commit", json!({"message": " \n"})),
        ("git_diff", json!({"file_path": "-p"})),
    ] {
        let refused = client.call(tool, on(arguments)).await;
        assert_eq!(code(&refused), "invalid_arguments", "{tool}: {refused}");
        assert!(!refused.to_string().contains("hunter22"), "{refused}");
    }
    for strategy in [json!("octopus"), Value::Null] {
        let merge = json!({"source_workspaces": ["gold"], "target_workspace": "gold", "strategy": strategy});
        assert_eq!(code(&client.call("workspace_merge", merge).await), "invalid_arguments");
    }
    let itself = json!({"source_workspaces": ["gold"], "target_workspace": "gold", "strategy": "sequential"});
    assert_eq!(code(&client.call("workspace_merge", itself).await), "named_twice");
}
