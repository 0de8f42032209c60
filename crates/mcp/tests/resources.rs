//! Resources: their list, content, refusals, completion and notifications.

mod support;

use serde_json::{Value, json};
use support::{Client, World};

async fn session_with_workspace() -> (World, Client) {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let made = client.call("workspace_create", json!({"name": "web"})).await;
    assert_eq!(made["isError"], false, "{made}");
    (world, client)
}

async fn read(client: &mut Client, uri: &str) -> Value {
    client.request("resources/read", Some(json!({"uri": uri}))).await
}

async fn completed(client: &mut Client, uri: &str, argument: [&str; 2], chosen: Value) -> Value {
    let [name, value] = argument;
    let params = json!({
        "ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": name, "value": value},
        "context": {"arguments": chosen},
    });
    client.request("completion/complete", Some(params)).await["result"]["completion"]["values"].clone()
}

#[tokio::test]
async fn resource_content_matches_its_tool() {
    let (world, mut client) = session_with_workspace().await;
    std::fs::write(world.vault().join("to do.md"), "# Plan\n").unwrap();
    let info = client.call("workspace_info", json!({"workspace_id": "web"})).await;
    let shown = read(&mut client, "agentiso://workspace/web").await["result"]["contents"][0].clone();
    assert_eq!(shown["text"], info["content"][0]["text"]);
    assert_eq!(
        (&shown["mimeType"], &shown["uri"]),
        (&json!("application/json"), &json!("agentiso://workspace/web"))
    );

    client.call("file_write", json!({"workspace_id": "web", "path": "/w/ä b", "content": "hé"})).await;
    let uri = "agentiso://workspace/web/file/w/%C3%A4%20b";
    let file = read(&mut client, uri).await["result"]["contents"][0].clone();
    assert_eq!(file, json!({"uri": uri, "mimeType": "text/plain", "text": "hé"}));

    client.call("exec_background", json!({"workspace_id": "web", "command": "serve"})).await;
    let job = read(&mut client, "agentiso://workspace/web/job/1").await["result"]["contents"][0].clone();
    let job: Value = serde_json::from_str(job["text"].as_str().unwrap()).unwrap();
    assert_eq!((&job["running"], &job["stdout"]), (&json!(true), &json!("serve")));

    let note = read(&mut client, "agentiso://vault/to%20do.md").await["result"]["contents"][0].clone();
    assert_eq!((&note["text"], &note["mimeType"]), (&json!("# Plan\n"), &json!("text/markdown")));
}

#[tokio::test]
async fn binary_resource_comes_in_base64() {
    let (world, mut client) = session_with_workspace().await;
    let id = client.call("workspace_info", json!({"workspace_id": "web"})).await["structuredContent"]
        ["workspace_id"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    world.vms.disks.files(id).lock().unwrap().insert("/b".to_owned(), (b"\xff\x00a".to_vec(), 0o644));
    let file = read(&mut client, "agentiso://workspace/web/file/b").await["result"]["contents"][0].clone();
    assert_eq!((&file["blob"], &file["mimeType"]), (&json!("/wBh"), &json!("application/octet-stream")));
}

#[tokio::test]
async fn resource_refusals_match_tool_refusals() {
    let (world, mut owner) = session_with_workspace().await;
    owner.call("file_write", json!({"workspace_id": "web", "path": "/x", "content": "secret"})).await;
    let mut other = Client::initialized(world.session(), "full", false).await;
    for uri in
        ["agentiso://workspace/web", "agentiso://workspace/web/file/x", "agentiso://workspace/web/job/1"]
    {
        let refused = read(&mut other, uri).await;
        assert_eq!(refused["error"]["data"]["code"], "not_owned", "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("workspace_adopt"));
        let told = other.request("resources/subscribe", Some(json!({"uri": uri}))).await;
        assert!(told["error"].is_object(), "{told}");
    }
    assert_eq!(other.request("resources/list", None).await["result"]["resources"], json!([]));
    for (uri, code) in [
        ("agentiso://workspace/nobody", -32002),
        ("agentiso://workspace/web/file/none", -32002),
        ("agentiso://workspace/web/job/9", -32002),
        ("agentiso://vault/none.md", -32002),
        ("agentiso://vault/../etc/passwd", -32602),
        ("agentiso://workspace/web/file", -32602),
        ("file:///etc/passwd", -32602),
        ("", -32602),
    ] {
        let refused = read(&mut owner, uri).await;
        assert_eq!(refused["error"]["code"], code, "{uri}: {refused}");
    }
    assert_eq!(owner.request("resources/read", Some(json!({"uri": 5}))).await["error"]["code"], -32602);
    assert_eq!(owner.request("ping", None).await["result"], json!({}));
}

#[tokio::test]
async fn resource_list_pages_own_workspaces_and_notes() {
    let (world, mut client) = session_with_workspace().await;
    client.call("workspace_create", json!({"name": "api"})).await;
    std::fs::create_dir(world.vault().join("n")).unwrap();
    for number in 0..150 {
        std::fs::write(world.vault().join(format!("n/{number:03}.md")), "x").unwrap();
    }
    let first = client.request("resources/list", None).await["result"].clone();
    let uris = |page: &Value| -> Vec<String> {
        let uri = |one: &Value| one["uri"].as_str().unwrap().to_owned();
        page["resources"].as_array().unwrap().iter().map(uri).collect()
    };
    let mut all = uris(&first);
    assert_eq!(all.len(), 100);
    // An entry that is removed between two pages hides nothing of the second.
    let cursor = first["nextCursor"].as_str().unwrap();
    std::fs::remove_file(world.vault().join("n/097.md")).unwrap();
    let second = client.request("resources/list", Some(json!({"cursor": cursor}))).await["result"].clone();
    assert!(second.get("nextCursor").is_none(), "{second}");
    all.extend(uris(&second));
    assert_eq!(all.len(), 152);
    assert_eq!(
        all[..3],
        ["agentiso://workspace/api", "agentiso://workspace/web", "agentiso://vault/n/000.md"]
    );
    all.dedup();
    assert_eq!(all.len(), 152);
    let bogus = client.request("resources/list", Some(json!({"cursor": "bogus"}))).await;
    assert_eq!(bogus["error"]["code"], -32602);
}

#[tokio::test]
async fn broken_vault_hides_no_workspaces() {
    let (world, mut client) = session_with_workspace().await;
    std::fs::remove_dir(world.vault()).unwrap();
    let listed = client.request("resources/list", None).await;
    assert_eq!(listed["result"]["resources"][0]["name"], "web", "{listed}");
    let world = support::world_without_vault().await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    assert_eq!(client.request("resources/list", None).await["result"]["resources"], json!([]));
    let note = read(&mut client, "agentiso://vault/a.md").await;
    assert_eq!(note["error"]["data"]["code"], "vault_disabled", "{note}");
}

#[tokio::test]
async fn resource_names_paths_and_ids_are_completed() {
    let (world, mut client) = session_with_workspace().await;
    client.call("workspace_create", json!({"name": "api"})).await;
    client.call("file_write", json!({"workspace_id": "web", "path": "/w/one", "content": ""})).await;
    client.call("exec_background", json!({"workspace_id": "web", "command": "serve"})).await;
    std::fs::write(world.vault().join("plan.md"), "x").unwrap();
    let file = "agentiso://workspace/{name}/file{+path}";
    let job = "agentiso://workspace/{name}/job/{id}";
    let web = json!({"name": "web"});
    assert_eq!(completed(&mut client, file, ["name", ""], json!({})).await, json!(["api", "web"]));
    assert_eq!(completed(&mut client, file, ["name", "w"], json!({})).await, json!(["web"]));
    assert_eq!(completed(&mut client, file, ["path", "/w/o"], web.clone()).await, json!(["/w/one"]));
    assert_eq!(completed(&mut client, file, ["path", "/w/o"], json!({})).await, json!([]));
    assert_eq!(completed(&mut client, job, ["id", ""], web.clone()).await, json!(["1"]));
    assert_eq!(
        completed(&mut client, "agentiso://vault{+path}", ["path", "/p"], json!({})).await,
        json!(["/plan.md"])
    );
    for (uri, argument) in [("agentiso://nothing", "name"), (file, "nothing")] {
        let params =
            json!({"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": argument, "value": ""}});
        assert_eq!(client.request("completion/complete", Some(params)).await["error"]["code"], -32602);
    }
    client.call("workspace_stop", json!({"workspace_id": "web"})).await;
    assert_eq!(completed(&mut client, file, ["path", "/"], web).await, json!([]));
}

fn updated(uri: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
}

#[tokio::test]
async fn subscriber_is_notified_until_it_unsubscribes() {
    let (world, mut client) = session_with_workspace().await;
    let uri = "agentiso://workspace/web";
    let subscribed = client.request("resources/subscribe", Some(json!({"uri": uri}))).await;
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    // The workspace is stopped from a shell session of the host.
    let shell = world.shell();
    shell.stop(&agentiso_core::names::WorkspaceRef::parse("web")).await.unwrap();
    assert_eq!(client.receive().await, updated(uri));
    while client.request_until("ping", &updated(uri)).await {}
    let gone = client.request("resources/unsubscribe", Some(json!({"uri": uri}))).await;
    assert_eq!(gone["result"], json!({}));
    shell.destroy(&agentiso_core::names::WorkspaceRef::parse("web")).await.unwrap();
    assert_eq!(client.drain().await, Vec::<Value>::new());
}

#[tokio::test]
async fn jobs_can_be_subscribed_to_but_files_cannot() {
    let (_world, mut client) = session_with_workspace().await;
    client.call("exec_background", json!({"workspace_id": "web", "command": "serve"})).await;
    let uri = "agentiso://workspace/web/job/1";
    assert_eq!(client.request("resources/subscribe", Some(json!({"uri": uri}))).await["result"], json!({}));
    assert_eq!(client.request("ping", None).await["result"], json!({}));
    let kill = json!({"name": "exec_background", "arguments": {"workspace_id": "web", "action": "kill", "job_id": 1}});
    client
        .send(&json!({"jsonrpc": "2.0", "id": 700, "method": "tools/call", "params": kill}).to_string())
        .await;
    let heard = [client.receive().await, client.receive().await];
    assert!(heard.contains(&updated(uri)) && heard.iter().any(|line| line["id"] == 700), "{heard:?}");
    for uri in ["agentiso://workspace/web/file/x", "agentiso://vault/a.md", "agentiso://workspace/web/job/9"]
    {
        let refused = client.request("resources/subscribe", Some(json!({"uri": uri}))).await;
        assert!(refused["error"].is_object(), "{refused}");
    }
}

#[tokio::test]
async fn stateless_client_is_notified_of_changes() {
    let (world, mut owner) = session_with_workspace().await;
    drop(owner.call("workspace_list", json!({})).await);
    let session = world.session();
    let mut client = Client::connect(session.clone(), "full", false);
    let create =
        json!({"name": "workspace_create", "arguments": {"name": "own"}, "_meta": support::stateless_meta()});
    client.request("tools/call", Some(create)).await;
    let uri = "agentiso://workspace/own";
    let wanted = json!({"resourceSubscriptions": [uri, "agentiso://vault/a.md"]});
    let params = json!({"notifications": wanted, "_meta": support::stateless_meta()});
    client
        .send(
            &json!({"jsonrpc": "2.0", "id": 70, "method": "subscriptions/listen", "params": params})
                .to_string(),
        )
        .await;
    let acknowledged = client.receive().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
    assert_eq!(acknowledged["params"]["notifications"]["resourceSubscriptions"], json!([uri]));
    session.stop(&agentiso_core::names::WorkspaceRef::parse("own")).await.unwrap();
    let told = client.receive().await;
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (&json!("notifications/resources/updated"), &json!(uri))
    );
}

#[tokio::test]
async fn subscriptions_are_limited_to_64() {
    let (_world, mut client) = session_with_workspace().await;
    for number in 1..=65 {
        client.call("exec_background", json!({"workspace_id": "web", "command": "serve"})).await;
        let uri = format!("agentiso://workspace/web/job/{number}");
        let answer = client.request("resources/subscribe", Some(json!({"uri": uri}))).await;
        assert_eq!(answer.get("error").is_some(), number > 64, "{number}: {answer}");
    }
    let again = json!({"uri": "agentiso://workspace/web/job/1"});
    assert_eq!(client.request("resources/subscribe", Some(again)).await["result"], json!({}));
}

#[tokio::test]
async fn profile_offers_only_resources_of_its_tools() {
    let world = support::world().await;
    for (tools, read_only, expected) in [
        ("full", false, vec!["workspace", "file", "job", "note"]),
        ("full", true, vec!["workspace", "file", "job", "note"]),
        ("core", false, vec!["workspace", "file"]),
        ("exec,file_read", false, vec!["file"]),
        ("vault", false, vec!["note"]),
    ] {
        let mut client = Client::connect(world.session(), tools, read_only);
        let hello = client.initialize("2025-11-25").await;
        let subscribe = expected.contains(&"workspace").then_some(true);
        let resources = match subscribe {
            Some(_) => json!({"subscribe": true}),
            None => json!({}),
        };
        assert_eq!(hello["result"]["capabilities"]["resources"], resources, "{tools}: {hello}");
        let listed = client.request("resources/templates/list", None).await;
        let names: Vec<&str> = listed["result"]["resourceTemplates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|template| template["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, expected, "{tools}");
    }
    let mut client = Client::connect(world.session(), "exec", false);
    let hello = client.initialize("2025-11-25").await;
    assert_eq!(hello["result"]["capabilities"], json!({"tools": {}}));
    for method in ["resources/list", "resources/read", "resources/subscribe", "completion/complete"] {
        let answer = client.request(method, Some(json!({"uri": "agentiso://workspace/web"}))).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let mut core = Client::initialized(world.session(), "core", false).await;
    assert_eq!(read(&mut core, "agentiso://vault/a.md").await["error"]["code"], -32602);
}
