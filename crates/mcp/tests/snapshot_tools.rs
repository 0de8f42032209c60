//! Snapshots and forks over VMs that exist in memory: their answers, refusals, and cancellation.

mod support;

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use support::{Client, World};

async fn with_workspace(tools: &str) -> (World, Client) {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), tools, false).await;
    let made = client.call("workspace_create", json!({"name": "web"})).await;
    assert_eq!(made["isError"], false, "{made}");
    (world, client)
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

fn object(result: &Value) -> Value {
    assert_eq!(result["isError"], false, "{result}");
    let object: Value = serde_json::from_str(text(result)).unwrap();
    assert_eq!(object, result["structuredContent"], "both forms say the same");
    object
}

fn code(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["structuredContent"]["code"].as_str().unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

async fn snapshot(client: &mut Client, action: &str, name: &str) -> Value {
    client.call("snapshot", json!({"workspace_id": "web", "action": action, "name": name})).await
}

async fn listed(client: &mut Client) -> Value {
    let list = client.call("snapshot", json!({"workspace_id": "web", "action": "list"})).await;
    let items: Value = serde_json::from_str(text(&list)).unwrap();
    assert_eq!(list["structuredContent"]["snapshots"], items);
    items
}

async fn write(client: &mut Client, workspace: &str, path: &str, content: &str) {
    let wrote =
        client.call("file_write", json!({"workspace_id": workspace, "path": path, "content": content})).await;
    assert_eq!(wrote["isError"], false, "{wrote}");
}

async fn read(client: &mut Client, workspace: &str, path: &str) -> Option<String> {
    let read = client.call("file_read", json!({"workspace_id": workspace, "path": path})).await;
    (read["isError"] == false).then(|| text(&read).to_owned())
}

#[tokio::test]
async fn snapshot_lifecycle_answers_match_the_contract() {
    let (_world, mut client) = with_workspace("full").await;
    assert_eq!(listed(&mut client).await, json!([]));
    write(&mut client, "web", "/a", "before").await;
    let made = object(&snapshot(&mut client, "create", "first").await);
    assert_eq!(keys(&made), ["snapshot_id", "name", "workspace_id", "has_memory", "created_at", "pause_ms"]);
    assert_eq!((&made["name"], &made["has_memory"]), (&json!("first"), &json!(false)));
    assert!(made["created_at"].as_str().unwrap().ends_with('Z'));
    write(&mut client, "web", "/a", "after").await;
    object(&snapshot(&mut client, "create", "second").await);

    let items = listed(&mut client).await;
    let expected = [
        "id",
        "name",
        "has_memory",
        "parent",
        "created_at",
        "used_bytes",
        "referenced_bytes",
        "current",
        "forks",
    ];
    assert_eq!(keys(&items[0]), expected);
    assert_eq!(items[0]["id"], made["snapshot_id"]);
    assert_eq!((&items[0]["parent"], &items[1]["parent"]), (&Value::Null, &json!("first")));
    assert_eq!((&items[0]["current"], &items[1]["current"]), (&json!(false), &json!(true)));
    assert_eq!((&items[0]["used_bytes"], &items[0]["forks"]), (&json!(4096), &json!([])));

    let restored = snapshot(&mut client, "restore", "first").await;
    let sentence = text(&restored);
    assert!(
        sentence.contains("restored to snapshot first") && sentence.contains("no processes"),
        "{sentence}"
    );
    assert_eq!(restored["structuredContent"]["processes_restored"], false);
    assert_eq!(restored["structuredContent"]["state"], "running");
    assert_eq!(read(&mut client, "web", "/a").await.as_deref(), Some("before"));
    let items = listed(&mut client).await;
    assert_eq!(
        (items.as_array().unwrap().len(), &items[0]["current"]),
        (2, &json!(true)),
        "none was deleted"
    );

    let deleted = snapshot(&mut client, "delete", "first").await;
    assert!(text(&deleted).contains("first") && text(&deleted).contains("deleted"), "{deleted}");
    let items = listed(&mut client).await;
    assert_eq!((items.as_array().unwrap().len(), &items[0]["parent"]), (1, &Value::Null));
}

#[tokio::test]
async fn restore_reports_whether_processes_came_back() {
    let (world, mut client) = with_workspace("full").await;
    let arguments = json!({"workspace_id": "web", "action": "create", "name": "m", "include_memory": true});
    assert_eq!(object(&client.call("snapshot", arguments).await)["has_memory"], true);
    let restored = snapshot(&mut client, "restore", "m").await;
    assert!(text(&restored).contains("processes go on"), "{restored}");
    assert_eq!(restored["structuredContent"]["processes_restored"], true);
    // The same from a stopped workspace.
    client.call("workspace_stop", json!({"workspace_id": "web"})).await;
    world.vms.memory_is_lost.store(true, Ordering::SeqCst);
    let restored = snapshot(&mut client, "restore", "m").await;
    assert!(text(&restored).contains("not brought back"), "{restored}");
    assert!(text(&restored).contains("Warning: its memory was taken on another host."), "{restored}");
    assert_eq!(restored["structuredContent"]["processes_restored"], false);
    assert_eq!(restored["structuredContent"]["warning"], "its memory was taken on another host");
}

#[tokio::test]
async fn snapshot_diff_lists_changed_paths() {
    let (_world, mut client) = with_workspace("full").await;
    write(&mut client, "web", "/same", "x").await;
    write(&mut client, "web", "/changed", "x").await;
    snapshot(&mut client, "create", "s").await;
    write(&mut client, "web", "/changed", "longer").await;
    write(&mut client, "web", "/new", "").await;
    let diff = object(&snapshot(&mut client, "diff", "s").await);
    assert_eq!(diff["added"], json!([{"path": "/new", "kind": "file", "size": 0}]));
    assert_eq!(diff["modified"], json!([{"path": "/changed", "kind": "file", "size": 6}]));
    assert_eq!((&diff["removed"], &diff["changed_bytes"]), (&json!([]), &json!(8192)));
    assert_eq!((&diff["added_count"], &diff["removed_count"]), (&json!(1), &json!(0)));
    let earlier = client.call("snapshot_diff", json!({"workspace_id": "web", "snapshot_name": "s"})).await;
    assert_eq!(object(&earlier), diff);

    for number in 0..250 {
        write(&mut client, "web", &format!("/many/{number}"), "").await;
    }
    let many = snapshot(&mut client, "diff", "s").await;
    assert_eq!(many["structuredContent"]["added"].as_array().unwrap().len(), 200);
    assert_eq!(many["structuredContent"]["added_count"], 251);
    assert!(many["content"][1]["text"].as_str().unwrap().contains("51 more"), "{many}");
    write(&mut client, "web", "/unreadable", "").await;
    let blocks = object(&snapshot(&mut client, "diff", "s").await);
    assert_eq!(blocks["paths_unknown"], "the file system is not ext4");
    assert!(blocks.get("added").is_none() && blocks["changed_bytes"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn snapshot_refusals_have_code_and_hint() {
    let (_world, mut client) = with_workspace("full").await;
    snapshot(&mut client, "create", "golden").await;
    let taken = snapshot(&mut client, "create", "golden").await;
    assert_eq!(code(&taken), "snapshot_exists");
    for action in ["restore", "delete", "diff"] {
        let missing = snapshot(&mut client, action, "goldne").await;
        assert_eq!(code(&missing), "snapshot_not_found", "{action}");
        assert!(text(&missing).contains("did you mean \"golden\"?"), "{missing}");
    }
    let fork = json!({"workspace_id": "web", "snapshot_name": "nosuch", "count": 3});
    assert_eq!(code(&client.call("workspace_fork", fork).await), "snapshot_not_found");
    let made = client
        .call("workspace_fork", json!({"workspace_id": "web", "snapshot_name": "golden", "new_name": "kid"}))
        .await;
    assert_eq!(made["isError"], false, "{made}");
    let used = snapshot(&mut client, "delete", "golden").await;
    assert_eq!(code(&used), "snapshot_in_use");
    assert!(text(&used).contains("kid") && text(&used).contains("workspace_destroy"), "{used}");
    assert_eq!(listed(&mut client).await[0]["forks"], json!(["kid"]));
    let name_taken = client
        .call("workspace_fork", json!({"workspace_id": "web", "snapshot_name": "golden", "new_name": "kid"}))
        .await;
    assert_eq!(code(&name_taken), "name_taken");
    client.call("workspace_stop", json!({"workspace_id": "web"})).await;
    let stopped = snapshot(&mut client, "create", "later").await;
    assert_eq!(code(&stopped), "wrong_state");
    assert!(text(&stopped).contains("workspace_start"), "{stopped}");
    let nobody = client.call("snapshot", json!({"workspace_id": "wbe", "action": "list"})).await;
    assert_eq!(code(&nobody), "workspace_not_found");
}

#[tokio::test]
async fn snapshot_argument_problems_are_reported_at_once() {
    let (_world, mut client) = with_workspace("full").await;
    let unknown = client.call("snapshot", json!({"workspace_id": "web", "action": "restor"})).await;
    assert!(
        text(&unknown).contains("action must be one of create, restore, list, delete, diff"),
        "{unknown}"
    );
    assert!(text(&unknown).contains("did you mean \"restore\"?"), "{unknown}");
    let several =
        client.call("snapshot", json!({"action": "delete", "include_memory": true, "nmae": 1})).await;
    assert_eq!(code(&several), "invalid_arguments");
    for part in [
        "workspace_id is missing",
        "name is missing",
        "include_memory is only for create",
        "did you mean name?",
    ] {
        assert!(text(&several).contains(part), "{part} is not in {several}");
    }
    let none = client.call("snapshot", json!({})).await;
    assert!(text(&none).contains("action is missing; it must be one of create"), "{none}");
    for name in ["", "a/b", "..", "a b", "x\n", &"n".repeat(129)] {
        assert_eq!(code(&snapshot(&mut client, "create", name).await), "invalid_arguments", "{name:?}");
    }
    let fork = json!({"workspace_id": "web", "count": 21, "name_prefix": "a b", "new_name": "ü",
        "setup_commands": ["true", "", 3, "\0"]});
    let fork = client.call("workspace_fork", fork).await;
    for part in [
        "snapshot_name is missing",
        "count must be an integer between 1 and 20, not 21",
        "name_prefix is not a valid prefix",
        "new_name is not a valid name",
        "setup_commands [1] must not be empty",
        "setup_commands [2] must be a string",
        "setup_commands [3] must not contain NUL bytes",
    ] {
        assert!(text(&fork).contains(part), "{part} is not in {fork}");
    }
    let zero = json!({"workspace_id": "web", "snapshot_name": "s", "count": 0, "setup_commands": "true"});
    let zero = client.call("workspace_fork", zero).await;
    assert!(text(&zero).contains("not 0") && text(&zero).contains("must be a list of strings"), "{zero}");
}

#[tokio::test]
async fn single_fork_answer_names_its_origin() {
    let (world, mut client) = with_workspace("full").await;
    write(&mut client, "web", "/a", "shared").await;
    let arguments = json!({"workspace_id": "web", "action": "create", "name": "s", "include_memory": true});
    client.call("snapshot", arguments).await;
    let fork = json!({"workspace_id": "web", "snapshot_name": "s", "name_prefix": "ignored"});
    let made = object(&client.call("workspace_fork", fork).await);
    assert_eq!(keys(&made), ["workspace_id", "name", "state", "ip", "forked_from"]);
    let name = made["name"].as_str().unwrap().to_owned();
    let digits = name.strip_prefix("fork-").unwrap();
    assert!(digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    let counted = json!({"workspace_id": "web", "snapshot_name": "s", "count": 1, "new_name": "only"});
    let counted = object(&client.call("workspace_fork", counted).await);
    assert_eq!((keys(&counted), &counted["name"]), (keys(&made), &json!("only")), "one is not several");
    client.call("workspace_destroy", json!({"workspace_id": "only"})).await;
    let info = object(&client.call("workspace_info", json!({"workspace_id": "web"})).await);
    let origin = json!({"source_workspace_id": info["workspace_id"], "source_workspace_name": "web",
        "snapshot_name": "s"});
    assert_eq!((&made["forked_from"], &made["state"]), (&origin, &json!("running")));
    assert!(info.get("forked_from").is_none());
    assert_eq!(keys(&info["snapshots"][0]), ["id", "name", "has_memory", "parent", "created_at"]);
    let info = object(&client.call("workspace_info", json!({"workspace_id": name})).await);
    assert_eq!((&info["forked_from"], &info["snapshots"]), (&origin, &json!([])));
    let list = client.call("workspace_list", json!({})).await;
    assert_eq!(list["structuredContent"]["workspaces"][1]["forked_from"], origin);

    write(&mut client, &name, "/a", "mine").await;
    assert_eq!(read(&mut client, "web", "/a").await.as_deref(), Some("shared"));
    world.vms.memory_is_lost.store(true, Ordering::SeqCst);
    let warned = client.call("workspace_fork", json!({"workspace_id": "web", "snapshot_name": "s"})).await;
    assert!(warned["content"][1]["text"].as_str().unwrap().contains("another host"), "{warned}");
    assert!(warned["structuredContent"]["note"].as_str().unwrap().contains("another host"), "{warned}");
}

#[tokio::test]
async fn batch_forks_are_numbered_in_order() {
    let (_world, mut client) = with_workspace("full").await;
    snapshot(&mut client, "create", "s").await;
    let id =
        object(&client.call("workspace_info", json!({"workspace_id": "web"})).await)["workspace_id"].clone();
    let shouted = id.as_str().unwrap().to_uppercase();
    let fork = json!({"workspace_id": shouted, "snapshot_name": "s", "count": 3.0, "new_name": "ignored",
        "setup_commands": ["echo ready"]});
    let made = object(&client.call("workspace_fork", fork).await);
    let expected = [
        "source_workspace_id",
        "snapshot_name",
        "requested_count",
        "success_count",
        "failure_count",
        "workers",
        "failures",
    ];
    assert_eq!(keys(&made), expected);
    assert_eq!(made["source_workspace_id"], shouted, "as the caller wrote it");
    assert_eq!((&made["requested_count"], &made["success_count"]), (&json!(3), &json!(3)));
    let workers = made["workers"].as_array().unwrap();
    assert!(workers.iter().all(|worker| keys(worker) == ["workspace_id", "name", "ip"]));
    let names: Vec<_> = workers.iter().map(|worker| worker["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["worker-1", "worker-2", "worker-3"]);
}

#[tokio::test]
async fn failed_fork_does_not_affect_the_others() {
    let (_world, mut client) = with_workspace("full").await;
    snapshot(&mut client, "create", "s").await;
    let fork = |prefix: &str, commands: Value| {
        json!({"workspace_id": "web", "snapshot_name": "s", "count": 3, "name_prefix": prefix,
            "setup_commands": commands})
    };
    let some = object(&client.call("workspace_fork", fork("unlucky", json!([]))).await);
    assert_eq!((&some["success_count"], &some["failure_count"]), (&json!(2), &json!(1)));
    let failure = &some["failures"][0];
    assert_eq!((&failure["index"], &failure["name"]), (&json!(2), &json!("unlucky-2")));
    assert!(failure["error"].as_str().unwrap().contains("no luck"), "{failure}");
    let none = object(&client.call("workspace_fork", fork("bad", json!(["echo fine", "nosuch"]))).await);
    assert_eq!((&none["workers"], &none["failure_count"]), (&json!([]), &json!(3)));
    assert!(none["failures"][2]["error"].as_str().unwrap().contains("nosuch"), "{none}");
    let single = json!({"workspace_id": "web", "snapshot_name": "s", "setup_commands": ["nosuch"]});
    let single = client.call("workspace_fork", single).await;
    assert_eq!(code(&single), "setup_failed");
    let left = client.call("workspace_list", json!({})).await;
    let names: Vec<_> = left["structuredContent"]["workspaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|workspace| workspace["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["web", "unlucky-1", "unlucky-3"], "what failed was removed");
}

#[tokio::test]
async fn cancelled_fork_is_undone() {
    let (world, mut client) = with_workspace("full").await;
    snapshot(&mut client, "create", "s").await;
    for more in [json!({"new_name": "stuck"}), json!({"count": 2, "name_prefix": "stuck"})] {
        let mut arguments = json!({"workspace_id": "web", "snapshot_name": "s"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let expected = arguments["count"].as_u64().unwrap_or(1) as usize;
        let params = json!({"name": "workspace_fork", "arguments": arguments});
        let request = json!({"jsonrpc": "2.0", "id": "fork", "method": "tools/call", "params": params});
        client.send(&request.to_string()).await;
        world.vms.waiting_commands(expected).await;
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "fork"}});
        client.send(&cancel.to_string()).await;
        world.vms.waiting_commands(0).await;
        while world.vms.disks.count() > 1 {
            tokio::task::yield_now().await;
        }
        loop {
            let list = client.call("workspace_list", json!({})).await;
            if list["structuredContent"]["workspaces"].as_array().unwrap().len() == 1 {
                break;
            }
        }
    }
    let deleted = snapshot(&mut client, "delete", "s").await;
    assert_eq!(deleted["isError"], false, "nothing depends on it: {deleted}");
}

#[tokio::test]
async fn snapshot_progress_is_sent_on_request() {
    let (_world, mut client) = with_workspace("full").await;
    let params = json!({"name": "snapshot", "_meta": {"progressToken": 7},
        "arguments": {"workspace_id": "web", "action": "create", "name": "s", "include_memory": true}});
    client
        .send(&json!({"jsonrpc": "2.0", "id": "p", "method": "tools/call", "params": params}).to_string())
        .await;
    let mut reports = 0;
    loop {
        let line = client.receive().await;
        if line["id"] == "p" {
            break;
        }
        assert_eq!(line["params"]["progressToken"], 7);
        reports += 1;
    }
    assert!(reports >= 2, "{reports}");
}

#[tokio::test]
async fn earlier_snapshot_tools_still_work() {
    let (_world, mut client) = with_workspace("full").await;
    let on = |arguments: Value| {
        let mut arguments = arguments;
        arguments["workspace_id"] = "web".into();
        arguments
    };
    let made =
        object(&client.call("snapshot_create", on(json!({"name": "s", "include_memory": true}))).await);
    assert_eq!(made["has_memory"], true);
    assert_eq!(object(&client.call("snapshot_create", on(json!({"snapshot_name": "t"}))).await)["name"], "t");
    let list = object(&client.call("snapshot_list", on(json!({}))).await);
    assert_eq!(list["snapshots"], listed(&mut client).await);
    for name in ["name", "snapshot_name"] {
        let restored = client.call("snapshot_restore", on(json!({ name: "s" }))).await;
        assert!(text(&restored).contains("restored"), "{restored}");
    }
    let both = client.call("snapshot_delete", on(json!({"name": "s", "snapshot_name": "t"}))).await;
    assert!(text(&both).contains("give only one"), "{both}");
    let neither = client.call("snapshot_delete", on(json!({}))).await;
    assert!(text(&neither).contains("snapshot_name is missing"), "{neither}");
    let deleted = client.call("snapshot_delete", on(json!({"snapshot_name": "t"}))).await;
    assert!(text(&deleted).contains("deleted"), "{deleted}");
}

#[tokio::test]
async fn core_profile_snapshots_its_only_workspace() {
    let (_world, mut client) = with_workspace("core").await;
    client.call("file_write", json!({"path": "/a", "content": "kept"})).await;
    assert_eq!(object(&client.call("snapshot_create", json!({"name": "s"})).await)["name"], "s");
    client.call("file_write", json!({"path": "/a", "content": "lost"})).await;
    let restored = client.call("snapshot_restore", json!({"snapshot_name": "s"})).await;
    assert_eq!(restored["isError"], false, "{restored}");
    assert_eq!(text(&client.call("file_read", json!({"path": "/a"})).await), "kept");
    let params = json!({"name": "snapshot", "arguments": {"action": "list"}});
    let refused = client.request("tools/call", Some(params)).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("not offered"), "{refused}");
}

#[tokio::test]
async fn fork_of_implied_workspace_names_its_id() {
    let (_world, mut client) = with_workspace("core,workspace_fork").await;
    client.call("snapshot_create", json!({"name": "s"})).await;
    let made = object(&client.call("workspace_fork", json!({"snapshot_name": "s", "count": 2})).await);
    assert_eq!(made["source_workspace_id"].as_str().unwrap().len(), 36, "{made}");
}
