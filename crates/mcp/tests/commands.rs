//! Commands in several workspaces, and the refusal of a guest with an old agent.

mod support;

use serde_json::{Value, json};
use support::Client;

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn parallel_results_keep_order_and_are_counted() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    for name in ["a", "b"] {
        client.call("workspace_create", json!({ "name": name })).await;
    }
    let commands = ["late", "echo x", "nosuch", "signal 9"];
    let arguments = json!({"workspace_ids": ["b", "a", "b", "a"], "commands": commands, "timeout_secs": 5});
    let done = client.call("exec_parallel", arguments).await;
    let answer: Value = serde_json::from_str(text(&done)).unwrap();
    assert_eq!(answer, done["structuredContent"]);
    let results = answer["results"].as_array().unwrap();
    let column = |key: &str| results.iter().map(|entry| entry[key].clone()).collect::<Vec<_>>();
    assert_eq!(column("workspace_name"), ["b", "a", "b", "a"]);
    assert_eq!(column("exit_code"), [-1, 0, 127, 137]);
    assert_eq!(column("timed_out"), [true, false, false, false]);
    assert_eq!(column("stdout"), ["so far", "x\n", "", ""]);
    assert!(results[0]["stderr"].as_str().unwrap().contains("timed out after 5 s"));
    let summary = &answer["summary"];
    let counts = ["total", "succeeded", "failed", "timed_out"].map(|key| summary[key].as_u64().unwrap());
    assert_eq!(counts, [4, 1, 2, 1]);
    assert!(summary["elapsed_ms"].is_u64());
}

#[tokio::test]
async fn one_wrong_argument_stops_all_parallel_commands() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    client.call("workspace_create", json!({"name": "a"})).await;
    for (ids, commands, part) in [
        (json!([]), json!("wait"), "it must have 1 to 20"),
        (json!(vec!["a"; 21]), json!("wait"), "it must have 1 to 20"),
        (json!(["a", "a"]), json!(["wait"]), "1 entries for 2 workspaces"),
        (json!(["a", "b c"]), json!("wait"), "[1] must be a workspace's name"),
        (json!(["a", "nobody"]), json!("wait"), "nobody"),
        (json!(["a"]), json!([7]), "[0] must be a string"),
        (json!("a"), json!("wait"), "must be a list"),
    ] {
        let refused = client.call("exec_parallel", json!({"workspace_ids": ids, "commands": commands})).await;
        assert!(refused["isError"] == true && text(&refused).contains(part), "{part}: {refused}");
    }
    assert_eq!(world.vms.waiting.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn old_agent_refusal_names_workspace_start() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    client.call("workspace_create", json!({"name": "a"})).await;
    let refused = client.call("set_env", json!({"workspace_id": "a", "vars": {"TOKEN": "hush"}})).await;
    assert_eq!(refused["structuredContent"]["code"], "unsupported", "{refused}");
    assert!(text(&refused).contains("older than this daemon") && text(&refused).contains("workspace_start"));
    assert!(!refused.to_string().contains("hush"));
}
