//! A session that works with teams.

use serde_json::{Value, json};

use super::{Client, World};

pub(crate) struct Teams {
    pub(crate) world: World,
    pub(crate) client: Client,
}

pub(crate) async fn teams() -> Teams {
    let world = super::world().await;
    let client = Client::initialized(world.session(), "full", false).await;
    Teams { world, client }
}

pub(crate) fn roles(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name, "role": "worker"})).collect()
}

pub(crate) fn create(team: &str, members: &[&str]) -> Value {
    json!({"action": "create", "name": team, "roles": roles(members)})
}

pub(crate) fn below(parent: &str, mut create: Value) -> Value {
    create["parent_team"] = parent.into();
    create
}

impl Teams {
    pub(crate) async fn done(&mut self, arguments: Value) -> Value {
        done(&mut self.client, arguments).await
    }

    pub(crate) async fn code(&mut self, arguments: Value) -> String {
        code(&mut self.client, arguments).await
    }

    /// Sends a message without special arguments.
    pub(crate) async fn send(&mut self, team: &str, from: &str, to: &str, content: &str) -> Value {
        self.done(json!({"action": "message", "name": team, "agent": from, "to": to, "content": content}))
            .await
    }

    pub(crate) async fn receive(&mut self, team: &str, agent: &str) -> Value {
        self.done(json!({"action": "receive", "name": team, "agent": agent})).await
    }

    pub(crate) async fn workspaces(&mut self) -> Vec<String> {
        let listed = self.client.call("workspace_list", json!({})).await;
        let list = listed["structuredContent"]["workspaces"].as_array().unwrap().clone();
        list.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    }

    /// A daemon and a session that are started after these have ended.
    pub(crate) async fn restarted(self) -> Self {
        self.client.close().await;
        let world = self.world.restarted().await;
        let client = Client::initialized(world.session(), "full", false).await;
        Self { world, client }
    }

    pub(crate) fn card(&self, team: &str, role: &str) -> Option<Value> {
        let path = self.world.vault().join(format!("teams/{team}/cards/{role}.json"));
        let text = std::fs::read_to_string(path).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }
}

pub(crate) async fn done(client: &mut Client, arguments: Value) -> Value {
    let answer = client.call("team", arguments.clone()).await;
    assert_ne!(answer["isError"], true, "{arguments}: {answer}");
    let text: Value = serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["action"], arguments["action"], "{answer}");
    text
}

pub(crate) async fn code(client: &mut Client, arguments: Value) -> String {
    let answer = client.call("team", arguments.clone()).await;
    assert_eq!(answer["isError"], true, "{arguments}: {answer}");
    assert!(answer["structuredContent"]["hint"].is_string() || arguments["action"].is_null(), "{answer}");
    answer["structuredContent"]["code"].as_str().unwrap().to_owned()
}

pub(crate) async fn begin(client: &mut Client, id: &str, arguments: Value) {
    let params = json!({"name": "team", "arguments": arguments});
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    client.send(&call.to_string()).await;
}
