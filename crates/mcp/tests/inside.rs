//! Sessions from inside a workspace: what they reach, and the tokens that admit them.

mod support;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceRef;
use agentiso_daemon::{SessionKind, WorkspaceInfo};
use serde_json::{Value, json};
use support::{Client, World};

const ENABLED: &str = "[rate_limit]\nenabled = false\n[mcp_bridge]\nenabled = true\n";

/// Two workspaces, and a session from inside the first.
async fn inside() -> (World, Client, Client, WorkspaceId) {
    let world = support::world_with(ENABLED).await;
    let mut outside = Client::initialized(world.session(), "full", false).await;
    for name in ["mine", "foreign"] {
        outside.call("workspace_create", json!({ "name": name })).await;
    }
    let id = info(&world, "mine").id;
    let session = world.daemon().open_session(SessionKind::Bound(id));
    let client = Client::initialized(session, "full", false).await;
    (world, outside, client, id)
}

fn info(world: &World, name: &str) -> WorkspaceInfo {
    let all = world.daemon().open_session(SessionKind::Shell).list(None);
    all.into_iter().find(|info| info.name.as_str() == name).expect("a workspace")
}

#[tokio::test]
async fn guest_session_reaches_only_its_own_workspace() {
    let (_world, _outside, mut client, id) = inside().await;
    let ran = client.call("exec", json!({"command": "echo here"})).await;
    assert_eq!(ran["structuredContent"]["stdout"], "here\n", "{ran}");
    for own in [json!("mine"), json!(id)] {
        let ran = client.call("exec", json!({"workspace_id": own, "command": "echo here"})).await;
        assert_eq!(ran["isError"], false, "{ran}");
    }
    let about = client.call("workspace_info", json!({})).await;
    assert_eq!(about["structuredContent"]["name"], "mine");
    // Refusals of an existing and of a missing workspace are the same.
    let refusal = |answer: Value, name: &str| {
        let told = answer["structuredContent"].to_string().replace(name, "X");
        assert_eq!(answer["structuredContent"]["code"], "workspace_not_found", "{answer}");
        told
    };
    for (tool, more) in [
        ("exec", json!({"command": "echo x"})),
        ("file_read", json!({"path": "/etc/passwd"})),
        ("workspace_info", json!({})),
        ("workspace_logs", json!({})),
        ("set_env", json!({"vars": {"A": "b"}})),
        ("exec_background", json!({"command": "echo x"})),
    ] {
        let mut arguments = more.clone();
        arguments["workspace_id"] = "foreign".into();
        let there = refusal(client.call(tool, arguments.clone()).await, "foreign");
        arguments["workspace_id"] = "foreigm".into();
        assert_eq!(refusal(client.call(tool, arguments).await, "foreigm"), there);
    }
}

#[tokio::test]
async fn guest_session_is_offered_no_host_tools() {
    let (_world, _outside, mut client, _) = inside().await;
    let listed = client.request("tools/list", None).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 14);
    let needs = |tool: &Value| tool["inputSchema"]["required"].to_string().contains("workspace_id");
    assert!(!tools.iter().any(needs));
    for tool in
        ["workspace_create", "workspace_destroy", "file_transfer", "network_policy", "vault", "snapshot"]
    {
        let params = json!({"name": tool, "arguments": {"workspace_id": "mine"}});
        let refused = client.request("tools/call", Some(params)).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}

#[tokio::test]
async fn guest_session_reads_at_most_1_mib() {
    let (_world, mut outside, mut client, _) = inside().await;
    let large = json!({"workspace_id": "mine", "path": "/large", "content": "x".repeat((1 << 20) + 1)});
    outside.call("file_write", large).await;
    assert_eq!(
        outside.call("file_read", json!({"workspace_id": "mine", "path": "/large"})).await["isError"],
        false
    );
    for limit in [Value::Null, json!(2 << 20)] {
        let refused = client.call("file_read", json!({"path": "/large", "limit": limit})).await;
        assert_eq!(refused["structuredContent"]["code"], "too_large", "{limit}");
    }
    let part = client.call("file_read", json!({"path": "/large", "offset": 1, "limit": 1 << 20})).await;
    assert_eq!(part["structuredContent"]["bytes"], 1 << 20);
}

#[tokio::test]
async fn daemon_refuses_owner_operations_of_guest_session() {
    let (world, _outside, _client, id) = inside().await;
    let session = world.daemon().open_session(SessionKind::Bound(id));
    let own = WorkspaceRef::Id(id);
    assert_eq!(session.destroy(&own).await.unwrap_err().code(), "not_allowed");
    assert_eq!(session.adopt(&own, true).await.unwrap_err().code(), "not_allowed");
    assert_eq!(session.grant_bridge(&own).await.unwrap_err().code(), "not_allowed");
    assert_eq!(session.list(None).len(), 1);
}

#[tokio::test]
async fn bridge_token_is_stored_only_as_hash() {
    let (world, mut outside, _client, id) = inside().await;
    let shell = world.daemon().open_session(SessionKind::Shell);
    let access = shell.grant_bridge(&WorkspaceRef::Id(id)).await.unwrap();
    assert_eq!(access.url, "http://10.42.0.1:3100/mcp");
    let token = access.token.expose();
    assert!(token.starts_with("mcp-") && token.len() == 68);
    let kept = |world: &World| std::fs::read_to_string(world.state_file()).unwrap();
    assert!(kept(&world).contains(&access.token.hash().to_string()));
    assert!(!kept(&world).contains(&token[4..]));
    let again = shell.grant_bridge(&WorkspaceRef::Id(id)).await.unwrap();
    assert!(!kept(&world).contains(&access.token.hash().to_string()));
    outside.call("workspace_destroy", json!({"workspace_id": "mine"})).await;
    assert!(!kept(&world).contains(&again.token.hash().to_string()));
    let without = support::world().await;
    let none = without.session().grant_bridge(&WorkspaceRef::Id(id)).await.unwrap_err();
    assert_eq!(none.code(), "bridge_disabled");
}

#[tokio::test]
async fn each_swarm_worker_gets_its_own_token() {
    let (_world, mut outside, _client, _) = inside().await;
    outside.call("snapshot", json!({"action": "create", "workspace_id": "mine", "name": "golden"})).await;
    let tasks = json!([{"name": "a", "command": "echo a"}, {"name": "b", "command": "echo b"}]);
    let done = outside
        .call(
            "swarm_run",
            json!({"golden_workspace": "mine", "snapshot_name": "golden", "tasks": tasks, "mcp_bridge": true,
                "cleanup": false}),
        )
        .await;
    let done = &done["structuredContent"];
    assert_eq!(
        (&done["summary"]["succeeded"], &done["summary"]["mcp_bridge"]),
        (&json!(2), &json!(true)),
        "{done}"
    );
    let mut tokens = Vec::new();
    for task in done["tasks"].as_array().unwrap() {
        let path = "/root/.config/opencode/config.jsonc";
        let read = json!({"workspace_id": task["workspace_id"], "path": path});
        let text = outside.call("file_read", read).await["content"][0]["text"].as_str().unwrap().to_owned();
        let config: Value = serde_json::from_str(&text).unwrap();
        let server = &config["mcpServers"]["agentiso"];
        assert_eq!((&server["type"], &server["url"]), (&json!("http"), &json!("http://10.42.0.1:3100/mcp")));
        tokens.push(server["headers"]["Authorization"].clone());
    }
    assert_ne!(tokens[0], tokens[1]);
}
