//! Tools over a daemon whose VMs exist in memory only: their answers, progress, cancellation and rate limits.

mod support;

use serde_json::{Value, json};
use support::{Client, World};

async fn session_with_workspace() -> (World, Client) {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let made = client.call("workspace_create", json!({"name": "web", "memory_mb": 256.0})).await;
    assert_eq!(made["isError"], false, "{made}");
    (world, client)
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

fn on(workspace: &str, mut arguments: Value) -> Value {
    arguments["workspace_id"] = workspace.into();
    arguments
}

#[tokio::test]
async fn workspace_lifecycle_answers_match_the_contract() {
    let (_world, mut client) = session_with_workspace().await;
    let listed = client.call("workspace_list", json!({})).await;
    let items: Value = serde_json::from_str(text(&listed)).unwrap();
    assert_eq!(listed["structuredContent"]["workspaces"], items);
    let item = items[0].as_object().unwrap();
    assert_eq!(
        item.keys().collect::<Vec<_>>(),
        ["workspace_id", "name", "state", "ip", "owned", "resources"]
    );
    assert_eq!(item["resources"], json!({"vcpus": 2, "memory_mb": 256, "disk_gb": 10}));
    let id = item["workspace_id"].as_str().unwrap().to_owned();

    let info = client.call("workspace_info", on("web", json!({}))).await;
    let object: Value = serde_json::from_str(text(&info)).unwrap();
    assert_eq!(object, info["structuredContent"]);
    assert_eq!((&object["snapshots"], &object["disk_used_bytes"]), (&json!([]), &json!(4096)));
    assert!(object["created_at"].as_str().unwrap().ends_with('Z'));
    let ip = client.call("workspace_ip", on(&id, json!({}))).await;
    assert_eq!(text(&ip), json!({"workspace_id": id, "ip": object["ip"]}).to_string());

    let twice = client.call("workspace_start", on("web", json!({}))).await;
    assert_eq!(twice["structuredContent"]["code"], "wrong_state");
    assert!(text(&client.call("workspace_stop", on("web", json!({}))).await).contains("stopped"));
    let stopped = client.call("exec", on("web", json!({"command": "echo x"}))).await;
    assert!(text(&stopped).contains("workspace_start"), "{stopped}");
    assert!(text(&client.call("workspace_start", on(&id, json!({}))).await).contains("started"));
    assert!(text(&client.call("workspace_destroy", on("web", json!({}))).await).contains("destroyed"));
    assert_eq!(text(&client.call("workspace_list", json!({})).await), "[]");
}

#[tokio::test]
async fn workspaces_of_ended_session_can_be_adopted() {
    let (world, client) = session_with_workspace().await;
    client.close().await;
    let mut heir = Client::initialized(world.session(), "full", false).await;
    let adopted = heir.call("workspace_adopt", json!({})).await;
    assert_eq!(adopted["structuredContent"]["adopted_count"], 1);
    assert_eq!(adopted["structuredContent"]["adopted"][0]["name"], "web");
    let nothing = heir.call("workspace_adopt", json!({"force": true})).await;
    assert_eq!(
        text(&nothing),
        json!({"adopted_count": 0, "adopted": [], "error_count": 0, "errors": []}).to_string()
    );
    let own = heir.call("workspace_adopt", on("web", json!({}))).await;
    assert_eq!(own["structuredContent"]["adopted"], true);
}

#[tokio::test]
async fn exec_answers_with_exit_code_and_output() {
    let (_world, mut client) = session_with_workspace().await;
    for name in ["exec", "workspace_exec"] {
        let done = client.call(name, on("web", json!({"command": "echo hi"}))).await;
        assert_eq!(text(&done), r#"{"exit_code":0,"stdout":"hi\n","stderr":""}"#);
        assert_eq!(done["structuredContent"]["stdout"], "hi\n");
    }
    let wrong = client.call("exec", on("web", json!({"command": "nosuch"}))).await;
    assert_eq!((&wrong["isError"], &wrong["structuredContent"]["exit_code"]), (&json!(false), &json!(127)));
    let killed = client.call("exec", on("web", json!({"command": "signal 15"}))).await;
    assert_eq!(killed["structuredContent"]["exit_code"], 143);
    let late = client.call("exec", on("web", json!({"command": "late", "timeout_secs": 3}))).await;
    assert_eq!(late["isError"], true);
    assert!(text(&late).contains("timed out after 3 s") && text(&late).contains("so far"), "{late}");
    let long = client.call("exec", on("web", json!({"command": "bytes 1000", "max_output_bytes": 10}))).await;
    let stdout = long["structuredContent"]["stdout"].as_str().unwrap();
    assert!(
        stdout.starts_with("xxxxxxxxxx\n[TRUNCATED 1000 bytes in all, the first 10 shown; for more, "),
        "{stdout}"
    );
}

#[tokio::test]
async fn files_are_written_read_edited_and_listed() {
    let (_world, mut client) = session_with_workspace().await;
    let path = "/workspace/ä b.txt";
    let wrote =
        client.call("file_write", on("web", json!({"path": path, "content": "aXbX€", "mode": "0755"}))).await;
    assert!(text(&wrote).contains(path), "{wrote}");
    let read = client.call("file_read", on("web", json!({"path": path}))).await;
    assert_eq!((text(&read), &read["structuredContent"]["content"]), ("aXbX€", &json!("aXbX€")));
    let part = client.call("file_read", on("web", json!({"path": path, "offset": 3, "limit": 2}))).await;
    assert_eq!(text(&part), "X");
    let edited = client
        .call("file_edit", on("web", json!({"path": path, "old_string": "X", "new_string": "YY"})))
        .await;
    assert!(!text(&edited).is_empty());
    assert_eq!(text(&client.call("file_read", on("web", json!({"path": path}))).await), "aYYbX€");
    let absent =
        client.call("file_edit", on("web", json!({"path": path, "old_string": "Q", "new_string": ""}))).await;
    assert_eq!(absent["structuredContent"]["code"], "no_match");
    let empty =
        client.call("file_edit", on("web", json!({"path": path, "old_string": "", "new_string": "x"}))).await;
    assert_eq!(empty["structuredContent"]["code"], "invalid_arguments");
    client.call("file_write", on("web", json!({"path": "/workspace/.a", "content": ""}))).await;
    let listed = client.call("file_list", on("web", json!({"path": "/workspace"}))).await;
    let entries: Value = serde_json::from_str(text(&listed)).unwrap();
    let names: Vec<_> = entries.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, [".a", "ä b.txt"]);
    assert_eq!(entries[1]["permissions"], "rwxr-xr-x");
    for name in ["/workspace/b", "/workspace/c"] {
        client.call("file_write", on("web", json!({"path": name, "content": ""}))).await;
    }
    let many = client.call("file_list", on("web", json!({"path": "/workspace"}))).await;
    assert!(many["structuredContent"]["note"].as_str().unwrap().contains("more than these 3"), "{many}");
    let gone = client.call("file_read", on("web", json!({"path": "/none"}))).await;
    assert_eq!(gone["structuredContent"]["code"], "not_found");
    assert!(text(&gone).contains("file_list"), "{gone}");
}

#[tokio::test]
async fn large_file_is_written_and_read_back() {
    let (_world, mut client) = session_with_workspace().await;
    let content = "ä\n\"".repeat(1 << 20);
    let params =
        json!({"name": "file_write", "arguments": on("web", json!({"path": "/big", "content": content}))});
    let line = json!({"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": params}).to_string();
    let wrote = client.send_and_receive(&line).await;
    assert_eq!(wrote["result"]["structuredContent"]["bytes"], content.len(), "{wrote}");
    let read = client.call("file_read", on("web", json!({"path": "/big"}))).await;
    assert!(text(&read) == content);
}

#[tokio::test]
async fn running_command_blocks_nothing_and_dies_when_cancelled() {
    let (world, mut client) = session_with_workspace().await;
    let exec = json!({"name": "exec", "arguments": on("web", json!({"command": "wait"}))});
    client
        .send(&json!({"jsonrpc": "2.0", "id": "long", "method": "tools/call", "params": exec}).to_string())
        .await;
    world.vms.waiting_commands(1).await;
    let quick = client.call("exec", on("web", json!({"command": "echo quick"}))).await;
    assert_eq!(quick["structuredContent"]["stdout"], "quick\n");
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long"}});
    client.send(&cancel.to_string()).await;
    world.vms.waiting_commands(0).await;
    // A cancelled request is not answered, and its id is free again.
    assert_eq!(client.request("ping", None).await["result"], json!({}));
    client.send(r#"{"jsonrpc":"2.0","id":"long","method":"ping"}"#).await;
    assert_eq!(client.receive().await["id"], "long");
}

#[tokio::test]
async fn running_command_dies_with_its_connection() {
    let (world, mut client) = session_with_workspace().await;
    let exec = json!({"name": "exec", "arguments": on("web", json!({"command": "wait"}))});
    client
        .send(&json!({"jsonrpc": "2.0", "id": 70, "method": "tools/call", "params": exec}).to_string())
        .await;
    world.vms.waiting_commands(1).await;
    client.close().await;
    world.vms.waiting_commands(0).await;
}

#[tokio::test]
async fn progress_is_sent_on_request_before_the_answer() {
    let (_world, mut client) = session_with_workspace().await;
    let params =
        json!({"name": "workspace_create", "arguments": {"name": "db"}, "_meta": {"progressToken": "tok"}});
    client
        .send(&json!({"jsonrpc": "2.0", "id": 90, "method": "tools/call", "params": params}).to_string())
        .await;
    let mut last = 0.0;
    loop {
        let line = client.receive().await;
        if line["id"] == 90 {
            break;
        }
        assert_eq!(
            (&line["method"], &line["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("tok"))
        );
        let progress = line["params"]["progress"].as_f64().unwrap();
        assert!(progress > last);
        last = progress;
    }
    assert!(last >= 2.0, "both reports of the boot were sent");
    assert_eq!(client.drain().await, Vec::<Value>::new());
}

#[tokio::test]
async fn panicking_tool_answers_with_internal_error() {
    let (_world, mut client) = session_with_workspace().await;
    let broken = client.call("exec", on("web", json!({"command": "panic"}))).await;
    assert_eq!(broken["structuredContent"]["code"], "internal", "{broken}");
    assert_eq!(client.call("exec", on("web", json!({"command": "echo on"}))).await["isError"], false);
}

#[tokio::test]
async fn core_profile_implies_the_only_workspace() {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "core", false).await;
    client.call("workspace_create", json!({"name": "a"})).await;
    let done = client.call("exec", json!({"command": "echo hi"})).await;
    assert_eq!(done["structuredContent"]["stdout"], "hi\n", "{done}");
    client.call("workspace_create", json!({"name": "b"})).await;
    let unclear = client.call("exec", json!({"command": "echo hi"})).await;
    assert!(text(&unclear).contains("owns 2 workspaces: a, b"), "{unclear}");
}

#[tokio::test]
async fn create_refusals_name_the_valid_values() {
    let (_world, mut client) = session_with_workspace().await;
    let taken = client.call("workspace_create", json!({"name": "web"})).await;
    assert_eq!(taken["structuredContent"]["code"], "name_taken");
    let large = client.call("workspace_create", json!({"vcpus": 999, "memory_mb": 999_999})).await;
    assert!(text(&large).contains("vcpus must be an integer between 1 and 8"), "{large}");
    assert!(text(&large).contains("memory_mb must be an integer between 128 and 8192"), "{large}");
    let image = client.call("workspace_create", json!({"base_image": "nosuch"})).await;
    assert_eq!(image["structuredContent"]["code"], "no_image");
    let policy = json!({"allow_domains": ["a b", "ok.test"], "deny_cidrs": ["1.2.3.4/99"]});
    let closed = client.call("workspace_create", json!({"network_policy": policy})).await;
    assert_eq!(closed["structuredContent"]["code"], "invalid_arguments");
    assert!(
        text(&closed).contains("allow_domains[0]") && text(&closed).contains("deny_cidrs[0]"),
        "{closed}"
    );
}

#[tokio::test]
async fn rate_limit_spans_sessions_and_spares_invalid_calls() {
    // So slow that no permit returns while the test runs.
    let world = support::world_with("[rate_limit]\ncreate_per_minute = 1\nexec_per_minute = 1\n").await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    for _ in 0..10 {
        let bad = client.call("workspace_create", json!({"vcpus": "many"})).await;
        assert_eq!(bad["structuredContent"]["code"], "invalid_arguments");
    }
    for number in 0..20 {
        let name = if number == 0 { "one" } else { "brief" };
        let made = client.call("workspace_create", json!({"name": name, "memory_mb": 256})).await;
        assert_eq!(made["isError"], false, "{made}");
        client.call("workspace_destroy", json!({"workspace_id": "brief"})).await;
    }
    let mut second = Client::initialized(world.session(), "full", false).await;
    let refused = second.call("workspace_create", json!({"name": "four"})).await;
    assert_eq!(refused["structuredContent"]["code"], "rate_limited");
    assert_eq!(refused["structuredContent"]["retryable"], true);
    assert!(text(&refused).contains("rate limit") && text(&refused).contains("1 per minute"), "{refused}");
    for _ in 0..100 {
        client.call("exec", on("one", json!({"command": "echo x"}))).await;
    }
    let refused = client.call("exec", on("one", json!({"command": "echo x"}))).await;
    assert!(text(&refused).contains("1 per minute"), "{refused}");
    let read = client.call("file_list", on("one", json!({"path": "/"}))).await;
    assert_ne!(read["structuredContent"]["code"], "rate_limited");
}
