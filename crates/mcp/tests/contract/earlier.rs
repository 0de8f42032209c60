//! Tool names of earlier versions: each still works, and none is listed.

use serde_json::{Value, json};

use crate::support::Client;
use crate::{code, compact, connected, create, keys, text};

const EARLIER: [&str; 13] = [
    "workspace_exec",
    "workspace_git_status",
    "workspace_ip",
    "exec_poll",
    "exec_kill",
    "file_upload",
    "file_download",
    "snapshot_create",
    "snapshot_restore",
    "snapshot_list",
    "snapshot_delete",
    "snapshot_diff",
    "port_forward_remove",
];

async fn listed(client: &mut Client) -> Vec<String> {
    let list = client.request("tools/list", None).await;
    let tools = list["result"]["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn earlier_tool_names_work_but_are_unlisted() {
    let (_world, mut client) = connected().await;
    let id = create(&mut client, "web").await;
    let names = listed(&mut client).await;
    assert!(names.len() == 31 && EARLIER.iter().all(|earlier| !names.contains(&(*earlier).to_owned())));

    let on = |mut arguments: Value| {
        arguments["workspace_id"] = "web".into();
        arguments
    };
    let ran = compact(&client.call("workspace_exec", on(json!({"command": "echo hi"}))).await);
    assert_eq!(ran["stdout"], "hi\n");
    let started = compact(&client.call("exec_background", on(json!({"command": "wait"}))).await);
    assert_eq!(started, json!({"job_id": 1, "status": "started"}));
    let polled = compact(&client.call("exec_poll", on(json!({"job_id": 1}))).await);
    assert_eq!((&polled["running"], &polled["exit_code"]), (&json!(true), &Value::Null));
    let killed = compact(&client.call("exec_kill", on(json!({"job_id": 1}))).await);
    assert_eq!(killed, json!({"job_id": 1, "signal": 9, "status": "killed"}));
    let ip = compact(&client.call("workspace_ip", on(json!({}))).await);
    assert_eq!((keys(&ip), &ip["workspace_id"]), (vec!["workspace_id", "ip"], &json!(id)));

    let made =
        compact(&client.call("snapshot_create", on(json!({"name": "s", "include_memory": false}))).await);
    assert_eq!((&made["name"], &made["has_memory"]), (&json!("s"), &json!(false)));
    let list = compact(&client.call("snapshot_list", on(json!({}))).await);
    let entry = &list["snapshots"][0];
    for key in ["name", "created_at", "used_bytes", "referenced_bytes"] {
        assert!(!entry[key].is_null(), "{key} is not in {entry}");
    }
    for (tool, word) in [("snapshot_restore", "restored"), ("snapshot_delete", "deleted")] {
        let done = client.call(tool, on(json!({"snapshot_name": "s"}))).await;
        assert!(code(&done).is_empty() && text(&done).contains(word), "{done}");
        let differs = client.call("snapshot_diff", on(json!({"snapshot_name": "s"}))).await;
        assert_eq!(code(&differs), if word == "deleted" { "snapshot_not_found" } else { "" }, "{differs}");
    }

    let added = compact(&client.call("port_forward", on(json!({"guest_port": 80}))).await);
    assert_eq!(keys(&added), ["workspace_id", "guest_port", "host_port"]);
    let removed = client.call("port_forward_remove", on(json!({"guest_port": 80}))).await;
    assert!(code(&removed).is_empty() && !text(&removed).is_empty(), "{removed}");
    let again = client.call("port_forward_remove", on(json!({"guest_port": 80}))).await;
    assert_eq!(again["isError"], true, "{again}");

    // The fake guests lack what these tools need; the tools are called all the same.
    let transfer = on(json!({"host_path": "nosuch", "guest_path": "/f"}));
    assert_eq!(code(&client.call("file_upload", transfer.clone()).await), "host_path_not_found");
    for tool in ["file_download", "workspace_git_status"] {
        let arguments = if tool == "file_download" { transfer.clone() } else { on(json!({})) };
        let answer = client.call(tool, arguments).await;
        assert_ne!(code(&answer), "invalid_arguments", "{tool}: {answer}");
    }
}

#[tokio::test]
async fn earlier_name_is_callable_only_with_its_tool() {
    let (world, _client) = connected().await;
    for (tools, read_only, callable) in [
        ("core", false, &["workspace_exec", "snapshot_create", "snapshot_restore"][..]),
        ("full", true, &["workspace_ip", "workspace_git_status"]),
        ("port_forward", false, &["port_forward_remove"]),
        ("file_transfer", false, &["file_upload", "file_download"]),
        ("exec_background", false, &["exec_poll", "exec_kill"]),
    ] {
        let mut client = Client::initialized(world.session(), tools, read_only).await;
        for name in EARLIER {
            let answer = client.request("tools/call", Some(json!({"name": name, "arguments": {}}))).await;
            let refused = answer["error"]["code"] == -32602;
            assert_eq!(!refused, callable.contains(&name), "{name} in {tools}: {answer}");
        }
    }
}

#[tokio::test]
async fn profiles_list_exactly_the_contract_tools() {
    let (world, _client) = connected().await;
    let mut core = [
        "workspace_create",
        "exec",
        "file_write",
        "file_read",
        "file_list",
        "snapshot_create",
        "snapshot_restore",
        "workspace_destroy",
    ]
    .map(str::to_owned)
    .to_vec();
    core.sort_unstable();
    for (tools, more) in [("core", None), ("core,workspace_fork", Some("workspace_fork"))] {
        let mut client = Client::initialized(world.session(), tools, false).await;
        let mut names = listed(&mut client).await;
        names.sort_unstable();
        let mut expected = core.clone();
        expected.extend(more.map(str::to_owned));
        expected.sort_unstable();
        assert_eq!(names, expected, "{tools}");
        assert_eq!(listed(&mut client).await.len(), expected.len(), "it stays so");
    }
    let mut reading = Client::initialized(world.session(), "full", true).await;
    let list = reading.request("tools/list", None).await;
    for tool in list["result"]["tools"].as_array().unwrap() {
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
    }
    for name in ["exec", "workspace_create", "vault", "team", "snapshot"] {
        let refused = reading.request("tools/call", Some(json!({"name": name, "arguments": {}}))).await;
        assert_eq!(refused["error"]["code"], -32602, "{name}: {refused}");
    }
}
