//! Parts of the tool contract that no test of a single tool covers: rules for every tool, exact members of answers, and
//! limits. docs/contract.md names the test that guards each line.

#[path = "../support/mod.rs"]
mod support;

mod addressing;
mod earlier;
mod edges;
mod ownership;
mod preparing;
mod rates;
mod shapes;
mod swarms;

use serde_json::{Value, json};
use support::{Client, World};

async fn connected() -> (World, Client) {
    let world = support::world().await;
    let client = Client::initialized(world.session(), "full", false).await;
    (world, client)
}

async fn another(world: &World) -> Client {
    Client::initialized(world.session(), "full", false).await
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

/// The stable code of a failure, `""` of a success.
fn code(result: &Value) -> &str {
    match result["isError"] == true {
        true => result["structuredContent"]["code"].as_str().unwrap(),
        false => "",
    }
}

/// The JSON of a success, which must be compact.
fn compact(result: &Value) -> Value {
    assert_eq!((code(result), &result["content"][0]["type"]), ("", &json!("text")), "{result}");
    let value: Value = serde_json::from_str(text(result)).unwrap();
    assert_eq!(value.to_string(), text(result));
    value
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

async fn create(client: &mut Client, name: &str) -> String {
    let made = client.call("workspace_create", json!({ "name": name, "memory_mb": 128, "disk_gb": 1 })).await;
    compact(&made)["workspace_id"].as_str().unwrap().to_owned()
}
