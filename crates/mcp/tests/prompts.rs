//! Prompts: which a session has, and the text of each.

mod support;

use serde_json::{Value, json};
use support::Client;

async fn got(client: &mut Client, name: &str, arguments: Value) -> Value {
    client.request("prompts/get", Some(json!({"name": name, "arguments": arguments}))).await
}

fn text(answer: &Value) -> &str {
    answer["result"]["messages"][0]["content"]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn four_prompts_are_listed_and_filled_in() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let listed = client.request("prompts/list", None).await["result"]["prompts"].clone();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|prompt| prompt["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["safe_experiment", "parallel_hypotheses", "build_environment", "sandbox_review"]);
    for prompt in listed.as_array().unwrap() {
        let arguments = prompt["arguments"].as_array().unwrap();
        assert!(arguments.iter().all(|argument| argument["description"].as_str().unwrap().len() > 5));
        let given: serde_json::Map<String, Value> = arguments
            .iter()
            .map(|argument| (argument["name"].as_str().unwrap().to_owned(), json!("some-text")))
            .collect();
        let name = prompt["name"].as_str().unwrap();
        let answer = got(&mut client, name, given.clone().into()).await;
        assert_eq!(answer["result"]["messages"][0]["role"], "user");
        assert_eq!(
            text(&answer).matches("some-text").count(),
            given.len(),
            "{name}: each argument is used once"
        );
        let missing = got(&mut client, name, json!({})).await;
        assert_eq!(missing["error"]["code"], -32602, "{missing}");
        let required = arguments.iter().filter(|argument| argument["required"] == true).count();
        assert_eq!(missing["error"]["data"]["problems"].as_array().unwrap().len(), required, "{missing}");
    }
}

#[tokio::test]
async fn prompt_names_only_tools_of_the_session() {
    let world = support::world().await;
    let mut all = Client::initialized(world.session(), "full,snapshot_create,snapshot_restore", false).await;
    let every: Vec<String> = tools(&mut all).await;
    for (profile, expected) in
        [("full", 4), ("core", 1), ("core,workspace_fork", 2), ("full,snapshot_create", 4), ("exec", 0)]
    {
        let mut client = Client::connect(world.session(), profile, false);
        let hello = client.initialize("2025-11-25").await;
        assert_eq!(hello["result"]["capabilities"].get("prompts").is_some(), expected > 0, "{profile}");
        let listed = client.request("prompts/list", None).await;
        let prompts = listed["result"]["prompts"].as_array().cloned().unwrap_or_default();
        assert_eq!(prompts.len(), expected, "{profile}: {listed}");
        let offered = tools(&mut client).await;
        for prompt in prompts {
            let name = prompt["name"].as_str().unwrap();
            let required =
                prompt["arguments"].as_array().unwrap().iter().filter(|one| one["required"] == true);
            let given: serde_json::Map<String, Value> =
                required.map(|one| (one["name"].as_str().unwrap().to_owned(), json!("x"))).collect();
            let answer = got(&mut client, name, given.into()).await;
            for word in text(&answer).split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
                let is_tool = word.contains('_') && every.iter().any(|tool| tool == word);
                assert!(!is_tool || offered.iter().any(|tool| tool == word), "{profile} {name}: {word}");
            }
        }
    }
}

async fn tools(client: &mut Client) -> Vec<String> {
    let listed = client.request("tools/list", None).await;
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    listed["result"]["tools"].as_array().unwrap().iter().map(name).collect()
}

#[tokio::test]
async fn bad_prompt_arguments_are_explained() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    for (name, arguments, part) in [
        ("safe_experimant", json!({}), "did you mean \"safe_experiment\"?"),
        ("safe_experiment", json!({"task": "x", "workspac": "y"}), "did you mean workspace?"),
        ("safe_experiment", json!({"task": "x", "workspace": "a b"}), "must be a workspace's name"),
        ("safe_experiment", json!({"task": 5}), "must be a string"),
        ("safe_experiment", json!({"task": "x".repeat(20_000)}), "at most 16384"),
        ("parallel_hypotheses", json!({"problem": "x", "snapshot": "s"}), "snapshot needs it"),
    ] {
        let answer = got(&mut client, name, arguments).await;
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(answer["error"]["code"], -32602);
        assert!(message.contains(part), "{message}");
    }
    // Clients send a field that a person left empty as an empty text.
    let empty = got(&mut client, "safe_experiment", json!({"task": "x", "workspace": ""})).await;
    assert!(text(&empty).contains("Create a workspace"), "{empty}");
}

#[tokio::test]
async fn prompt_arguments_are_completed() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    client.call("workspace_create", json!({"name": "web"})).await;
    client.call("snapshot", json!({"workspace_id": "web", "action": "create", "name": "clean"})).await;
    let ask = |name: &str, argument: &str, chosen: Value| {
        json!({
            "ref": {"type": "ref/prompt", "name": name}, "argument": {"name": argument, "value": ""},
            "context": {"arguments": chosen},
        })
    };
    for (argument, chosen, expected) in [
        ("workspace", json!({}), json!(["web"])),
        ("snapshot", json!({"workspace": "web"}), json!(["clean"])),
        ("snapshot", json!({}), json!([])),
        ("problem", json!({}), json!([])),
    ] {
        let params = ask("parallel_hypotheses", argument, chosen);
        let completion = client.request("completion/complete", Some(params)).await;
        assert_eq!(completion["result"]["completion"]["values"], expected, "{argument}: {completion}");
        assert_eq!(completion["result"]["completion"]["hasMore"], false);
    }
    for params in [ask("nothing", "task", json!({})), ask("safe_experiment", "nothing", json!({})), json!({})]
    {
        assert_eq!(client.request("completion/complete", Some(params)).await["error"]["code"], -32602);
    }
}
