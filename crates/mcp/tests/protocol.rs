//! The MCP protocol as a client sees it on the wire, with valid and invalid input.

mod support;

use serde_json::{Value, json};
use support::Client;

#[tokio::test]
async fn every_handshake_version_is_answered_with_itself() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let world = support::world().await;
        let mut client = Client::connect(world.session(), "full", false);
        let answer = client.initialize(version).await;
        assert_eq!(answer["result"]["protocolVersion"], version);
        assert_eq!(answer["result"]["serverInfo"]["name"], "agentiso");
        assert_eq!(
            answer["result"]["capabilities"],
            json!({"completions": {}, "prompts": {}, "resources": {"subscribe": true}, "tools": {}})
        );
        assert!(answer["result"]["instructions"].as_str().unwrap().len() < 2048);
        let listed = client.request("tools/list", None).await;
        assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 31);
        assert!(listed["result"].get("resultType").is_none() && listed["result"].get("ttlMs").is_none());
        client.close().await;
    }
}

#[tokio::test]
async fn unknown_handshake_version_gets_latest_stateful_version() {
    let world = support::world().await;
    let mut client = Client::connect(world.session(), "full", false);
    let answer = client.initialize("1999-01-01").await;
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn stateless_requests_need_no_handshake() {
    let world = support::world().await;
    let mut client = Client::connect(world.session(), "full", false);
    let found = client.request("server/discover", Some(json!({"_meta": support::stateless_meta()}))).await;
    assert!(
        found["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")),
        "{found}"
    );
    assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "agentiso");
    assert!(found["result"]["ttlMs"].as_u64().unwrap() > 0);
    let listed = client.request("tools/list", Some(json!({"_meta": support::stateless_meta()}))).await;
    assert!(listed["result"]["ttlMs"].as_u64().unwrap() > 0, "{listed}");
    for gone in ["ping", "resources/subscribe", "resources/unsubscribe"] {
        let answer = client.request(gone, Some(json!({"_meta": support::stateless_meta()}))).await;
        assert_eq!(answer["error"]["code"], -32601, "{gone}: {answer}");
    }
    let params = json!({"name": "workspace_list", "arguments": {}, "_meta": support::stateless_meta()});
    let called = client.request("tools/call", Some(params)).await;
    assert_eq!(called["result"]["content"][0]["text"], "[]", "{called}");
    assert_eq!(called["result"]["structuredContent"], json!({"workspaces": []}));
}

#[tokio::test]
async fn messages_before_the_handshake_are_harmless() {
    let world = support::world().await;
    let mut client = Client::connect(world.session(), "full", false);
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#).await;
    assert_eq!(client.request("ping", None).await["result"], json!({}));
    let early = client.request("tools/list", None).await;
    assert_eq!(early["error"]["code"], -32602, "{early}");
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!(client.initialize("2025-06-18").await["result"]["protocolVersion"], "2025-06-18");
}

#[tokio::test]
async fn tool_list_is_identical_in_every_session() {
    let world = support::world().await;
    let mut texts = Vec::new();
    for _ in 0..2 {
        let mut client = Client::initialized(world.session(), "full", false).await;
        client.send(r#"{"jsonrpc":"2.0","id":9,"method":"tools/list"}"#).await;
        texts.push(client.receive_text().await);
        client.send(r#"{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{}}"#).await;
        texts.push(client.receive_text().await);
    }
    assert!(texts.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn unknown_cursor_is_refused() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let answer = client.request("tools/list", Some(json!({"cursor": "bogus"}))).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().unwrap().contains("bogus"));
    let answer = client.request("tools/list", Some(json!(5))).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn unknown_tool_error_suggests_the_nearest() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    for (wrong, right) in [("exce", "exec"), ("workspace_craete", "workspace_create"), ("read_file", "file_")]
    {
        let answer = client.request("tools/call", Some(json!({"name": wrong, "arguments": {}}))).await;
        assert_eq!(answer["error"]["code"], -32602);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(wrong) && message.contains(right), "{message}");
    }
}

#[tokio::test]
async fn methods_and_tools_not_offered_are_refused() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    for method in ["nonsense", "logging/setLevel", "roots/list", "subscriptions/listen"] {
        let answer = client.request(method, Some(json!({"level": "info", "notifications": {}}))).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let mut reading = Client::initialized(world.session(), "full", true).await;
    let answer =
        reading.request("tools/call", Some(json!({"name": "workspace_exec", "arguments": {}}))).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().unwrap().contains("not offered"), "{answer}");
}

#[tokio::test]
async fn garbage_is_answered_and_the_session_goes_on() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let cases = [
        ("{\"jsonrpc\":\"2.0\",", -32700),
        ("not json", -32700),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#, -32600),
        ("17", -32600),
        (r#"{"jsonrpc":"2.0","id":8,"method":17}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":[1]}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":5}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":8,"method":"tools/call"}"#, -32602),
    ];
    for (line, code) in cases {
        client.send(line).await;
        let answer = client.receive().await;
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    client.send(r#"{"jsonrpc":"2.0","method":"nonsense"}"#).await;
    client.send("").await;
    assert_eq!(client.request("ping", None).await["result"], json!({}));
}

#[tokio::test]
async fn non_object_arguments_are_invalid_arguments() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    for wrong in [json!([1]), json!("x"), json!(5)] {
        let result = client.call("exec", wrong).await;
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(result["structuredContent"]["code"], "invalid_arguments");
    }
    let figures = world.session().metrics().unwrap();
    let counted = "agentiso_errors_total{error_type=\"invalid_arguments\"} 3";
    assert!(figures.lines().any(|line| line == counted), "{figures}");
    assert_eq!(client.call("workspace_list", Value::Null).await["content"][0]["text"], "[]");
}

#[tokio::test]
async fn request_id_is_free_after_its_answer() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    for _ in 0..3 {
        client.send(r#"{"jsonrpc":"2.0","id":"same","method":"tools/list"}"#).await;
        assert!(client.receive().await["result"]["tools"].is_array());
    }
}

#[tokio::test]
async fn requests_beyond_the_size_limit_are_skipped() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let write = |id: u64, size: usize| {
        let params = json!({"name": "file_write", "arguments":
            {"workspace_id": "none", "path": "/x", "content": "y".repeat(size)}});
        json!({"jsonrpc": "2.0", "method": "tools/call", "params": params, "id": id}).to_string()
    };
    for (id, mebibytes) in [(1, 2), (2, 17), (3, 32)] {
        let answer = client.send_and_receive(&write(id, mebibytes << 20)).await;
        assert_eq!(answer["result"]["structuredContent"]["code"], "workspace_not_found", "{answer}");
    }
    let answer = client.send_and_receive(&write(4, (32 << 20) + 1)).await;
    assert_eq!(answer["result"]["structuredContent"]["code"], "invalid_arguments", "{answer}");
    let answer = client.send_and_receive(&write(5, 80 << 20)).await;
    assert_eq!((answer["id"].as_u64(), answer["error"]["code"].as_i64()), (Some(5), Some(-32600)));
    let answer = client.send_and_receive(&"x".repeat(70 << 20)).await;
    assert_eq!((&answer["id"], answer["error"]["code"].as_i64()), (&Value::Null, Some(-32600)));
    assert!(client.request("tools/list", None).await["result"]["tools"].is_array());
}

#[tokio::test]
async fn unknown_profile_is_explained_to_the_client() {
    let world = support::world().await;
    let mut client = Client::connect(world.session(), "core,exce", false);
    let answer = client.request("initialize", Some(json!({}))).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("did you mean exec?"), "{answer}");
    client.close().await;
}

#[tokio::test]
async fn core_profile_explains_a_missing_workspace() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "core", false).await;
    let result = client.call("exec", json!({"command": "true"})).await;
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("owns no workspace") && text.contains("workspace_create"), "{text}");
}

#[tokio::test]
async fn pending_answers_reach_a_half_closed_client() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    client.send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#).await;
    let answers = client.drain().await;
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["id"], 7);
}

#[tokio::test]
async fn tool_errors_have_text_and_structured_form() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let result = client.call("exec", json!({"workspace_id": "nowhere", "command": "true"})).await;
    assert_eq!(result["isError"], true);
    let structured = &result["structuredContent"];
    assert_eq!(structured["code"], "workspace_not_found");
    assert!(structured["retryable"].is_boolean() && structured["message"].is_string());
    assert!(result["content"][0]["text"].as_str().unwrap().contains("nowhere"));
    let all = client.call("exec", json!({"timeout_secs": 0, "comand": "x", "workdir": "rel"})).await;
    let problems = all["structuredContent"]["problems"].as_array().unwrap();
    let arguments: Vec<&str> = problems.iter().map(|p| p["argument"].as_str().unwrap()).collect();
    assert_eq!(arguments, ["comand", "workspace_id", "command", "timeout_secs", "workdir"]);
    assert_eq!(client.drain().await, Vec::<Value>::new());
}
