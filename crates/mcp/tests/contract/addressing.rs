//! Names and UUIDs of workspaces in the arguments and answers of every tool.

use serde_json::{Value, json};

use crate::support::Client;
use crate::{code, compact, connected, create, text};

/// A call of each tool that works on workspaces, with every argument that names one.
pub(crate) fn calls(on: &str) -> Vec<(&'static str, Value)> {
    let tasks = json!([{"name": "t", "command": "echo x"}]);
    let path = "/workspace/f";
    vec![
        ("workspace_info", json!({"workspace_id": on})),
        ("workspace_logs", json!({"workspace_id": on})),
        ("workspace_ip", json!({"workspace_id": on})),
        ("exec", json!({"workspace_id": on, "command": "echo x"})),
        ("workspace_exec", json!({"workspace_id": on, "command": "echo x"})),
        ("exec_background", json!({"workspace_id": on, "action": "start", "command": "echo x"})),
        ("exec_background", json!({"workspace_id": on, "action": "poll", "job_id": 1})),
        ("exec_background", json!({"workspace_id": on, "action": "kill", "job_id": 1})),
        ("exec_poll", json!({"workspace_id": on, "job_id": 1})),
        ("exec_kill", json!({"workspace_id": on, "job_id": 1})),
        ("exec_parallel", json!({"workspace_ids": ["own", on], "commands": "echo x"})),
        ("set_env", json!({"workspace_id": on, "vars": {"A": "1"}})),
        ("file_write", json!({"workspace_id": on, "path": path, "content": "old"})),
        ("file_read", json!({"workspace_id": on, "path": path})),
        ("file_edit", json!({"workspace_id": on, "path": path, "old_string": "old", "new_string": "old"})),
        ("file_list", json!({"workspace_id": on, "path": "/"})),
        (
            "file_transfer",
            json!({"workspace_id": on, "direction": "upload", "host_path": "f", "guest_path": "/f"}),
        ),
        ("file_upload", json!({"workspace_id": on, "host_path": "f", "guest_path": "/f"})),
        ("file_download", json!({"workspace_id": on, "host_path": "g", "guest_path": "/f"})),
        ("snapshot", json!({"workspace_id": on, "action": "create", "name": "s"})),
        ("snapshot", json!({"workspace_id": on, "action": "list"})),
        ("snapshot", json!({"workspace_id": on, "action": "diff", "name": "s"})),
        ("snapshot", json!({"workspace_id": on, "action": "restore", "name": "s"})),
        ("snapshot_list", json!({"workspace_id": on})),
        ("snapshot_diff", json!({"workspace_id": on, "snapshot_name": "s"})),
        ("snapshot_restore", json!({"workspace_id": on, "snapshot_name": "s"})),
        ("workspace_fork", json!({"workspace_id": on, "snapshot_name": "s"})),
        ("network_policy", json!({"workspace_id": on})),
        ("port_forward", json!({"workspace_id": on, "action": "add", "guest_port": 80})),
        ("port_forward", json!({"workspace_id": on, "action": "remove", "guest_port": 80})),
        ("port_forward_remove", json!({"workspace_id": on, "guest_port": 80})),
        ("git_clone", json!({"workspace_id": on, "url": "https://git.test/x"})),
        ("git_status", json!({"workspace_id": on})),
        ("workspace_git_status", json!({"workspace_id": on})),
        ("git_commit", json!({"workspace_id": on, "message": "m"})),
        ("git_push", json!({"workspace_id": on})),
        ("git_diff", json!({"workspace_id": on})),
        (
            "workspace_merge",
            json!({"source_workspaces": [on], "target_workspace": "own", "strategy": "sequential"}),
        ),
        (
            "workspace_merge",
            json!({"source_workspaces": ["own"], "target_workspace": on, "strategy": "sequential"}),
        ),
        ("swarm_run", json!({"golden_workspace": on, "snapshot_name": "s", "tasks": tasks})),
        (
            "swarm_run",
            json!({"golden_workspace": "own", "snapshot_name": "s", "tasks": tasks, "merge_strategy": "sequential",
                "merge_target": on}),
        ),
        (
            "team",
            json!({"action": "create", "name": "t", "roles": [{"name": "a", "role": "r"}], "golden_workspace": on,
                "base_snapshot": "s"}),
        ),
        ("team", json!({"action": "destroy", "name": "t"})),
        ("snapshot", json!({"workspace_id": on, "action": "delete", "name": "s"})),
        ("snapshot_create", json!({"workspace_id": on, "name": "again"})),
        ("snapshot_delete", json!({"workspace_id": on, "snapshot_name": "again"})),
        ("workspace_stop", json!({"workspace_id": on})),
        ("workspace_start", json!({"workspace_id": on})),
    ]
}

/// Gives a session the workspace `own` with a snapshot `s`.
pub(crate) async fn with_own(client: &mut Client) {
    create(client, "own").await;
    client.call("snapshot", json!({"workspace_id": "own", "action": "create", "name": "s"})).await;
}

#[tokio::test]
async fn workspace_arguments_take_name_or_uuid() {
    let (_world, mut client) = connected().await;
    with_own(&mut client).await;
    for form in [|_: &str| "web".to_owned(), |id: &str| id.to_owned(), |id: &str| id.to_uppercase()] {
        let id = create(&mut client, "web").await;
        let written = form(&id);
        for (tool, arguments) in calls(&written) {
            let answer = client.call(tool, arguments.clone()).await;
            // The fake guests have no git, no variables and no transfers; only whether the workspace was found counts.
            let elsewhere = ["workspace_not_found", "invalid_arguments", "not_owned", "wrong_state"];
            assert!(!elsewhere.contains(&code(&answer)), "{tool} {arguments}: {answer}");
        }
        let adopted = compact(&client.call("workspace_adopt", json!({"workspace_id": written})).await);
        assert_eq!(adopted["workspace_id"], id, "{written}");
        for fork in compact(&client.call("workspace_list", json!({})).await).as_array().unwrap() {
            if fork["name"].as_str().is_some_and(|name| name.starts_with("fork-")) {
                client.call("workspace_destroy", json!({"workspace_id": fork["name"]})).await;
            }
        }
        let gone = client.call("workspace_destroy", json!({"workspace_id": written})).await;
        assert!(text(&gone).contains("destroyed"), "{gone}");
    }
}

#[tokio::test]
async fn uuid_shaped_text_never_means_a_name() {
    let (_world, mut client) = connected().await;
    let name = "00000000-0000-4000-8000-000000000000";
    let id = create(&mut client, name).await;
    let by_name = client.call("workspace_info", json!({"workspace_id": name})).await;
    assert_eq!(code(&by_name), "workspace_not_found", "{by_name}");
    let by_id = compact(&client.call("workspace_info", json!({"workspace_id": id})).await);
    assert_eq!(by_id["name"], name);
}

#[tokio::test]
async fn guest_tools_refuse_a_stopped_workspace() {
    const WITHOUT_GUEST: [&str; 6] = [
        "workspace_info",
        "workspace_logs",
        "workspace_ip",
        "network_policy",
        "port_forward",
        "port_forward_remove",
    ];
    // These use a snapshot, or start the workspace themselves.
    const STOPPED_WILL_DO: [&str; 10] = [
        "snapshot_list",
        "snapshot_diff",
        "snapshot_restore",
        "snapshot_delete",
        "workspace_fork",
        "swarm_run",
        "workspace_start",
        "snapshot",
        "snapshot_create",
        "team",
    ];
    let (_world, mut client) = connected().await;
    with_own(&mut client).await;
    create(&mut client, "web").await;
    client.call("workspace_stop", json!({"workspace_id": "web"})).await;
    let mut refused = Vec::new();
    for (tool, arguments) in calls("web") {
        if WITHOUT_GUEST.contains(&tool) || STOPPED_WILL_DO.contains(&tool) {
            continue;
        }
        let answer = client.call(tool, arguments.clone()).await;
        assert_eq!(code(&answer), "wrong_state", "{tool} {arguments}: {answer}");
        assert!(text(&answer).contains("not running"), "{tool} {arguments}: {answer}");
        refused.push(tool);
    }
    for tool in ["exec", "exec_background", "exec_parallel", "set_env", "file_write", "file_transfer"] {
        assert!(refused.contains(&tool), "{tool}");
    }
}

#[tokio::test]
async fn every_tool_names_the_unknown_workspace() {
    let (_world, mut client) = connected().await;
    with_own(&mut client).await;
    for nobody in ["nobody", "00000000-0000-4000-8000-000000000000"] {
        let all = calls(nobody).into_iter().filter(|(_, arguments)| arguments.to_string().contains(nobody));
        for (tool, arguments) in all.chain([
            ("workspace_destroy", json!({"workspace_id": nobody})),
            ("workspace_adopt", json!({"workspace_id": nobody})),
        ]) {
            let refused = client.call(tool, arguments.clone()).await;
            assert_eq!(code(&refused), "workspace_not_found", "{tool} {arguments}: {refused}");
            assert!(text(&refused).contains(nobody), "{tool}: {refused}");
        }
    }
}

#[tokio::test]
async fn port_and_policy_answers_repeat_the_written_workspace() {
    let (_world, mut client) = connected().await;
    let id = create(&mut client, "web").await;
    for (port, written) in (2000..).zip(["web".to_owned(), id.clone(), id.to_uppercase()]) {
        let added = json!({"workspace_id": written, "action": "add", "guest_port": port});
        assert_eq!(compact(&client.call("port_forward", added).await)["workspace_id"], written);
        let policy = json!({"workspace_id": written, "allow_internet": true});
        assert_eq!(compact(&client.call("network_policy", policy).await)["workspace_id"], written);
        let made = json!({"workspace_id": written, "action": "create", "name": format!("s{port}")});
        assert_eq!(compact(&client.call("snapshot", made).await)["workspace_id"], id);
        let info = compact(&client.call("workspace_info", json!({"workspace_id": written})).await);
        assert_eq!(info["workspace_id"], id);
        let run = json!({"workspace_ids": [written], "commands": "echo x"});
        assert_eq!(compact(&client.call("exec_parallel", run).await)["results"][0]["workspace_id"], id);
    }
}
