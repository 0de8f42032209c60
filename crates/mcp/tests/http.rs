//! The server over HTTP: admission, both eras of the protocol, and calls whose client disconnects.

mod support;

use std::time::Duration;

use agentiso_http::Settings;
use serde_json::{Value, json};
use support::web::Web;

fn list(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

#[tokio::test]
async fn requests_without_the_token_get_401() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let nearly = format!("Bearer {}x", &web.token[..web.token.len() - 1]);
    let basic = format!("Basic {}", web.token);
    for wrong in ["", "Bearer", "Bearer ", &nearly, &basic, &web.token] {
        for (method, path) in [("POST", "/mcp"), ("GET", "/mcp"), ("POST", "/"), ("DELETE", "/mcp")] {
            let refused = web.ask(method, path, &[("Authorization", wrong)], "").await;
            assert_eq!(refused.status, 401, "{wrong:?} {method} {path}");
            assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"agentiso\""));
        }
    }
}

#[tokio::test]
async fn foreign_host_and_origin_headers_are_refused() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let port = web.address.port();
    let status = async |name: &str, value: &str| web.post(&[(name, value)], &list(1)).await.status;
    for foreign in ["", "evil.test", &format!("evil.test:{port}"), "127.0.0.1", "127.0.0.1:1"] {
        assert_eq!(status("Host", foreign).await, 403, "{foreign:?}");
    }
    for foreign in ["null", "http://evil.test", "https://localhost", &format!("https://127.0.0.1:{port}")] {
        assert_eq!(status("Origin", foreign).await, 403, "{foreign:?}");
    }
    // 400: the request was admitted, and belongs to no session.
    for ours in [&format!("localhost:{port}"), "named.test", "named.test:443"] {
        assert_eq!(status("Host", ours).await, 400, "{ours:?}");
    }
    assert_eq!(status("Origin", &format!("http://localhost:{port}")).await, 400);
}

#[tokio::test]
async fn malformed_http_requests_are_refused() {
    let world = support::world().await;
    let web = Web::with(&world, Settings { max_body: 1000, ..Settings::CLIENTS }).await;
    assert_eq!(web.ask("POST", "/other", &[], "{}").await.status, 404);
    let got = web.ask("GET", "/mcp", &[], "").await;
    assert_eq!((got.status, got.header("allow")), (405, Some("POST, DELETE")));
    assert_eq!(web.ask("POST", "/mcp", &[("Content-Type", "text/plain")], "{}").await.status, 415);
    assert_eq!(web.ask("POST", "/mcp", &[("Accept", "text/html")], "{}").await.status, 406);
    for (body, code) in
        [("", -32700), ("{", -32700), ("[]", -32600), ("{}", -32600), ("{\"method\":1}", -32600)]
    {
        let refused = web.ask("POST", "/mcp", &[], body).await;
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!(code)), "{body:?}");
    }
    assert_eq!(web.ask("POST", "/mcp", &[], &" ".repeat(1001)).await.status, 413);
    let mut connection = web.connect().await;
    let chunked = web.headers(&[("Transfer-Encoding", "chunked")]);
    connection.send("POST", "/mcp", &chunked, "").await;
    connection.raw(format!("3e9\r\n{}", " ".repeat(1001)).as_bytes()).await;
    assert_eq!(connection.response().await.status, 413);
    let mut connection = web.connect().await;
    connection.raw(b"NONSENSE\r\n\r\n").await;
    assert_eq!(connection.response().await.status, 400);
}

#[tokio::test]
async fn http_session_lasts_from_initialize_to_delete() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let (session, answer) = web.initialize(version).await;
        assert_eq!(answer["result"]["protocolVersion"], version);
        let headers = [("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", version)];
        let listed = web.post(&headers, &list(7)).await.json();
        assert_eq!(listed["id"], 7);
        assert!(listed["result"]["tools"].as_array().unwrap().len() >= 30);
        let other = [("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "1999-01-01")];
        assert_eq!(web.post(&other, &list(8)).await.status, 400);
        assert_eq!(web.ask("DELETE", "/mcp", &headers, "").await.status, 204);
        assert_eq!(web.ask("DELETE", "/mcp", &headers, "").await.status, 404);
        assert_eq!(web.post(&headers, &list(9)).await.status, 404);
    }
    assert_eq!(web.post(&[], &list(1)).await.status, 400);
    assert_eq!(web.post(&[("Mcp-Session-Id", "made-up")], &list(1)).await.status, 404);
}

#[tokio::test]
async fn http_session_owns_its_workspaces() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let (first, _) = web.initialize("2025-06-18").await;
    let (second, _) = web.initialize("2025-06-18").await;
    let (first, second) = ([("Mcp-Session-Id", first.as_str())], [("Mcp-Session-Id", second.as_str())]);
    let made = web.post(&first, &call(1, "workspace_create", json!({"name": "web"}))).await.json();
    assert_eq!(made["result"]["isError"], false, "{made}");
    let run = call(2, "exec", json!({"workspace_id": "web", "command": "echo hi"}));
    assert_eq!(web.post(&first, &run).await.json()["result"]["structuredContent"]["stdout"], "hi\n");
    let refused = web.post(&second, &run).await.json();
    assert_eq!(refused["result"]["structuredContent"]["code"], "not_owned", "{refused}");
    assert_eq!(web.ask("DELETE", "/mcp", &first, "").await.status, 204);
    let adopt = call(3, "workspace_adopt", json!({"workspace_id": "web"}));
    let adopted = web.post(&second, &adopt).await.json();
    assert_eq!(adopted["result"]["structuredContent"]["adopted"], true, "{adopted}");
}

#[tokio::test]
async fn stateless_http_requests_need_no_session() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let found = web.stateless(json!("d"), "server/discover", json!({})).await;
    assert_eq!(found.status, 200, "{found:?}");
    assert!(found.json()["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")));
    assert_eq!(found.header("mcp-session-id"), None);
    let made = json!({"name": "workspace_create", "arguments": {"name": "web"}});
    assert_eq!(web.stateless(json!(1), "tools/call", made).await.json()["result"]["isError"], false);
    // All stateless requests share one session: one may use a workspace that another created.
    let run = json!({"name": "exec", "arguments": {"workspace_id": "web", "command": "echo hi"}});
    let ran = web.stateless(json!(1), "tools/call", run).await.json();
    assert_eq!((&ran["id"], &ran["result"]["structuredContent"]["stdout"]), (&json!(1), &json!("hi\n")));
    assert_eq!(web.stateless(json!(2), "resources/burn", json!({})).await.status, 404);
}

#[tokio::test]
async fn stateless_request_must_match_its_headers() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let message = |version: &str| {
        let mut meta = support::stateless_meta();
        meta["io.modelcontextprotocol/protocolVersion"] = version.into();
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}})
    };
    let refusal = async |version: &str, headers: &[(&str, &str)]| {
        let refused = web.post(headers, &message(version)).await;
        (refused.status, refused.json()["error"]["code"].as_i64().unwrap())
    };
    let version = ("MCP-Protocol-Version", "2026-07-28");
    assert_eq!(refusal("2026-07-28", &[]).await, (400, -32020));
    assert_eq!(refusal("2026-07-28", &[version]).await, (400, -32020));
    assert_eq!(refusal("2026-07-28", &[version, ("Mcp-Method", "tools/call")]).await, (400, -32020));
    assert_eq!(refusal("2027-01-01", &[version, ("Mcp-Method", "tools/list")]).await, (400, -32020));
    let unknown = [("MCP-Protocol-Version", "2027-01-01"), ("Mcp-Method", "tools/list")];
    assert_eq!(refusal("2027-01-01", &unknown).await, (400, -32022));
    let bare = web.post(&[version, ("Mcp-Method", "tools/list")], &list(1)).await;
    assert_eq!((bare.status, &bare.json()["error"]["code"]), (400, &json!(-32602)));
    // After every refusal, a correct request is served.
    assert_eq!(web.stateless(json!(1), "tools/list", json!({})).await.status, 200);
}

#[tokio::test]
async fn progress_events_precede_the_http_answer() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let (session, _) = web.initialize("2025-06-18").await;
    let mut create = call(5, "workspace_create", json!({"name": "db"}));
    create["params"]["_meta"] = json!({"progressToken": "tok"});
    let events = web.post(&[("Mcp-Session-Id", &session)], &create).await.events();
    let (answer, reports) = events.split_last().unwrap();
    assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(5), &json!(false)), "{answer}");
    assert!(reports.len() >= 2 && reports.iter().all(|report| report["params"]["progressToken"] == "tok"));
    // A client that reads no events gets the answer alone.
    create["params"]["arguments"]["name"] = "db2".into();
    let headers = [("Mcp-Session-Id", session.as_str()), ("Accept", "application/json")];
    assert_eq!(web.post(&headers, &create).await.json()["result"]["isError"], false);
}

#[tokio::test]
async fn hangup_or_cancel_ends_the_http_command() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let (session, _) = web.initialize("2025-06-18").await;
    let headers = [("Mcp-Session-Id", session.as_str())];
    web.post(&headers, &call(1, "workspace_create", json!({"name": "web"}))).await;
    let wait = call(2, "exec", json!({"workspace_id": "web", "command": "wait"})).to_string();
    let mut connection = web.connect().await;
    connection.send("POST", "/mcp", &web.headers(&headers), &wait).await;
    world.vms.waiting_commands(1).await;
    drop(connection);
    world.vms.waiting_commands(0).await;
    // The same after the answer has become a stream.
    let mut connection = web.connect().await;
    let events = [headers[0], ("Accept", "text/event-stream")];
    connection.send("POST", "/mcp", &web.headers(&events), &wait).await;
    world.vms.waiting_commands(1).await;
    drop(connection);
    world.vms.waiting_commands(0).await;
    // The same by a cancellation on another connection.
    let mut connection = web.connect().await;
    connection.send("POST", "/mcp", &web.headers(&headers), &wait).await;
    world.vms.waiting_commands(1).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    assert_eq!(web.post(&headers, &cancel).await.status, 202);
    world.vms.waiting_commands(0).await;
    assert!(connection.response().await.body.contains("cancelled"));
}

#[tokio::test]
async fn stateless_hangup_ends_only_its_own_command() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let made = json!({"name": "workspace_create", "arguments": {"name": "web"}});
    web.stateless(json!(1), "tools/call", made).await;
    let mut message = call(1, "exec", json!({"workspace_id": "web", "command": "wait"}));
    message["params"]["_meta"] = support::stateless_meta();
    let headers = web.headers(&[
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "exec"),
    ]);
    let (mut first, mut second) = (web.connect().await, web.connect().await);
    first.send("POST", "/mcp", &headers, &message.to_string()).await;
    second.send("POST", "/mcp", &headers, &message.to_string()).await;
    world.vms.waiting_commands(2).await;
    drop(first);
    world.vms.waiting_commands(1).await;
    drop(second);
    world.vms.waiting_commands(0).await;
}

#[tokio::test]
async fn resource_updates_reach_stream_or_subscription_request() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let (session, _) = web.initialize("2025-11-25").await;
    let headers = [("Mcp-Session-Id", session.as_str())];
    web.post(&headers, &call(1, "workspace_create", json!({"name": "web"}))).await;
    assert_eq!(web.ask("GET", "/mcp", &[headers[0], ("Accept", "application/json")], "").await.status, 406);
    assert_eq!(web.ask("GET", "/mcp", &[("Mcp-Session-Id", "made-up")], "").await.status, 404);
    let mut stream = web.connect().await;
    stream.send("GET", "/mcp", &web.headers(&headers), "").await;
    stream.until("\r\n\r\n").await;
    let uri = "agentiso://workspace/web";
    let subscribe =
        json!({"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": uri}});
    assert_eq!(web.post(&headers, &subscribe).await.json()["result"], json!({}));

    let make = json!({"name": "workspace_create", "arguments": {"name": "lone"}});
    web.stateless(json!(1), "tools/call", make).await;
    let mut listening = web.connect().await;
    let filter = json!({"resourceSubscriptions": ["agentiso://workspace/lone"]});
    let params = json!({"notifications": filter, "_meta": support::stateless_meta()});
    let listen = json!({"jsonrpc": "2.0", "id": "mine", "method": "subscriptions/listen", "params": params});
    let modern = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "subscriptions/listen")];
    listening.send("POST", "/mcp", &web.headers(&modern), &listen.to_string()).await;
    listening.until("subscriptions/acknowledged").await;

    web.post(&headers, &call(3, "workspace_stop", json!({"workspace_id": "web"}))).await;
    assert!(stream.until("notifications/resources/updated").await.contains("text/event-stream"));
    let stop = json!({"name": "workspace_stop", "arguments": {"workspace_id": "lone"}});
    web.stateless(json!(2), "tools/call", stop).await;
    let told = listening.until("notifications/resources/updated").await;
    // The acknowledgement and at least one change; a stop may be seen in progress as well.
    assert!(told.matches("\"io.modelcontextprotocol/subscriptionId\":\"mine\"").count() >= 2, "{told}");
    // The stream ends with its session.
    assert_eq!(web.ask("DELETE", "/mcp", &headers, "").await.status, 204);
    stream.until("\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let (session, _) = web.initialize("2025-06-18").await;
    let headers = web.headers(&[("Mcp-Session-Id", &session)]);
    let mut connection = web.connect().await;
    // The second request is sent before the first is answered.
    connection.send("POST", "/mcp", &headers, &list(1).to_string()).await;
    connection.send("POST", "/mcp", &headers, &list(2).to_string()).await;
    assert_eq!(connection.response().await.json()["id"], 1);
    assert_eq!(connection.response().await.json()["id"], 2);
}

#[tokio::test]
async fn http_sessions_and_requests_are_limited() {
    let world = support::world().await;
    let settings = Settings { max_sessions: 1, max_requests: 1, ..Settings::CLIENTS };
    let web = Web::with(&world, settings).await;
    let (session, _) = web.initialize("2025-06-18").await;
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let refused = web.post(&[], &hello).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    let headers = [("Mcp-Session-Id", session.as_str())];
    web.post(&headers, &call(1, "workspace_create", json!({"name": "web"}))).await;
    let wait = call(2, "exec", json!({"workspace_id": "web", "command": "wait"})).to_string();
    let mut connection = web.connect().await;
    connection.send("POST", "/mcp", &web.headers(&headers), &wait).await;
    world.vms.waiting_commands(1).await;
    assert_eq!(web.post(&headers, &list(3)).await.status, 503);
    drop(connection);
    world.vms.waiting_commands(0).await;
    web.ask("DELETE", "/mcp", &headers, "").await;
    web.initialize("2025-06-18").await;
}

#[tokio::test]
async fn idle_http_session_ends() {
    let world = support::world().await;
    let settings = Settings { session_idle: Duration::from_millis(200), ..Settings::CLIENTS };
    let web = Web::with(&world, settings).await;
    let (session, _) = web.initialize("2025-06-18").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(web.post(&[("Mcp-Session-Id", &session)], &list(1)).await.status, 404);
}

#[tokio::test]
async fn closing_server_ends_calls_and_refuses_connections() {
    let world = support::world().await;
    let web = Web::of(&world).await;
    let (session, _) = web.initialize("2025-06-18").await;
    let headers = [("Mcp-Session-Id", session.as_str())];
    web.post(&headers, &call(1, "workspace_create", json!({"name": "web"}))).await;
    let wait = call(2, "exec", json!({"workspace_id": "web", "command": "wait"})).to_string();
    let mut connection = web.connect().await;
    connection.send("POST", "/mcp", &web.headers(&headers), &wait).await;
    world.vms.waiting_commands(1).await;
    web.stop.cancel();
    tokio::time::timeout(Duration::from_secs(30), web.serving).await.expect("an end").expect("no panic");
    world.vms.waiting_commands(0).await;
    assert!(tokio::net::TcpStream::connect(web.address).await.is_err());
}
