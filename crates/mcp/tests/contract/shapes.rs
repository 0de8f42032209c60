//! The exact members of answers, and the defaults that show in them.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::{another, code, compact, connected, create, keys, text};

#[tokio::test]
async fn workspace_answers_have_the_contract_members() {
    let (world, mut client) = connected().await;
    let made = compact(&client.call("workspace_create", json!({})).await);
    assert_eq!(
        keys(&made),
        ["workspace_id", "name", "state", "ip", "boot_time_ms", "from_pool", "resources"]
    );
    let name = made["name"].as_str().unwrap().to_owned();
    let digits = name.strip_prefix("ws-").unwrap();
    assert!(digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(
        made["resources"],
        json!({"vcpus": 2, "memory_mb": 512, "disk_gb": 10}),
        "of the configuration"
    );
    assert_eq!(
        (&made["ip"], &made["state"], &made["from_pool"]),
        (&json!("10.42.0.2"), &json!("running"), &json!(false))
    );

    let info = compact(&client.call("workspace_info", json!({"workspace_id": name})).await);
    for key in [
        "workspace_id",
        "name",
        "state",
        "base_image",
        "ip",
        "resources",
        "network",
        "snapshots",
        "created_at",
        "disk_used_bytes",
        "disk_volsize_bytes",
    ] {
        assert!(!info[key].is_null(), "{key} is not in {info}");
    }
    assert_eq!(
        info["network"],
        json!({"allow_internet": false, "allow_inter_vm": false, "allowed_ports": [], "port_forwards": []})
    );
    let created = info["created_at"].as_str().unwrap();
    assert!(
        created.starts_with("20") && created.as_bytes()[10] == b'T' && created.ends_with('Z'),
        "{created}"
    );
    world.vms.sizes_are_unknown.store(true, Ordering::SeqCst);
    let info = compact(&client.call("workspace_info", json!({"workspace_id": name})).await);
    assert!(info.get("disk_used_bytes").is_none() && info.get("disk_volsize_bytes").is_none(), "{info}");

    let forward = json!({"workspace_id": name, "action": "add", "guest_port": 80});
    let added = compact(&client.call("port_forward", forward).await);
    assert_eq!(keys(&added), ["workspace_id", "guest_port", "host_port"]);
    let info = compact(&client.call("workspace_info", json!({"workspace_id": name})).await);
    assert_eq!(
        info["network"]["port_forwards"],
        json!([{"host_port": added["host_port"], "guest_port": 80}])
    );
}

#[tokio::test]
async fn policy_change_keeps_unnamed_fields_even_when_stopped() {
    let (_world, mut client) = connected().await;
    create(&mut client, "web").await;
    let mut change = async |mut arguments: Value| {
        arguments["workspace_id"] = "web".into();
        let answer = compact(&client.call("network_policy", arguments).await);
        assert_eq!(keys(&answer), ["workspace_id", "network_policy"]);
        answer["network_policy"].clone()
    };
    let closed = json!({"allow_internet": false, "allow_inter_vm": false, "allowed_ports": []});
    assert_eq!(change(json!({})).await, closed);
    let open = json!({"allow_internet": true, "allow_inter_vm": true, "allowed_ports": [1, 65535]});
    change(json!({"allow_inter_vm": true, "allowed_ports": [1, 65535]})).await;
    assert_eq!(change(json!({"allow_internet": true})).await, open);
    assert_eq!(change(json!({})).await, open);
    client.call("workspace_stop", json!({"workspace_id": "web"})).await;
    let shut =
        json!({"workspace_id": "web", "allow_internet": false, "allow_inter_vm": false, "allowed_ports": []});
    assert_eq!(compact(&client.call("network_policy", shut).await)["network_policy"], closed);
    let info = compact(&client.call("workspace_info", json!({"workspace_id": "web"})).await);
    assert_eq!((&info["state"], &info["network"]["allow_internet"]), (&json!("stopped"), &json!(false)));
}

#[tokio::test]
async fn log_length_defaults_to_100_lines() {
    let (world, mut client) = connected().await;
    let id = create(&mut client, "web").await;
    let directory = world.state_file().with_file_name("workspaces").join(&id);
    std::fs::create_dir_all(&directory).unwrap();
    let console: Vec<String> = (1..=150).map(|number| format!("line {number}")).collect();
    std::fs::write(directory.join("console.log"), console.join("\n") + "\n").unwrap();
    std::fs::write(directory.join("stderr.log"), "qemu\n").unwrap();
    let mut logs = async |mut arguments: Value| {
        arguments["workspace_id"] = "web".into();
        compact(&client.call("workspace_logs", arguments).await)
    };
    let lines = |logs: &Value| logs["console"].as_str().unwrap().lines().count();
    for all in [json!({}), json!({"log_type": "all"}), json!({"log_type": "everything"})] {
        let shown = logs(all).await;
        assert_eq!((lines(&shown), shown["stderr"].as_str().unwrap().trim()), (100, "qemu"));
        assert!(shown["console"].as_str().unwrap().trim_end().ends_with("line 150"), "the last ones");
    }
    let few = logs(json!({"log_type": "console", "max_lines": 3})).await;
    assert_eq!((lines(&few), few.get("stderr")), (3, None));
    assert_eq!(lines(&logs(json!({"max_lines": 1000})).await), 150);
    assert!(logs(json!({"log_type": "stderr"})).await.get("console").is_none());
}

#[tokio::test]
async fn command_answers_have_the_contract_members() {
    let (_world, mut client) = connected().await;
    create(&mut client, "web").await;
    let on = |mut arguments: Value| {
        arguments["workspace_id"] = "web".into();
        arguments
    };
    let ran = compact(&client.call("exec", on(json!({"command": "echo x"}))).await);
    assert_eq!(keys(&ran), ["exit_code", "stdout", "stderr"]);
    let failed = client.call("exec", on(json!({"command": "nosuch"}))).await;
    assert_eq!((code(&failed), &compact(&failed)["exit_code"]), ("", &json!(127)));
    for (bytes, cut) in [(262_144, false), (262_145, true)] {
        let asked = json!({"command": format!("bytes {bytes}"), "max_output_bytes": 262_144});
        let long = compact(&client.call("exec", on(asked)).await);
        let stdout = long["stdout"].as_str().unwrap();
        let marker = stdout.lines().find(|line| line.starts_with("[TRUNCATED"));
        assert_eq!(marker.is_some(), cut, "{bytes}");
        assert!(marker.is_none_or(|marker| marker.contains("262145")), "{marker:?}");
        assert_eq!(stdout.lines().next().unwrap().len(), 262_144, "the first bytes that were asked for");
    }
    let unasked = client.call("exec", on(json!({"command": "bytes 262145"}))).await;
    let text = unasked["content"][0]["text"].as_str().unwrap();
    assert!((8_000..14_000).contains(&text.len()), "{} characters unasked", text.len());
    assert!(text.contains("[TRUNCATED 262145 bytes in all, ") && text.contains("max_output_bytes"), "{text}");
    let started =
        compact(&client.call("exec_background", on(json!({"action": "start", "command": "wait"}))).await);
    assert_eq!(started, json!({"job_id": 1, "status": "started"}));
    let polled = compact(&client.call("exec_background", on(json!({"action": "poll", "job_id": 1}))).await);
    for key in ["job_id", "running", "exit_code", "stdout", "stderr"] {
        assert!(polled.get(key).is_some(), "{key} is not in {polled}");
    }
    assert_eq!((&polled["running"], &polled["exit_code"]), (&json!(true), &Value::Null));
    let killed = json!({"action": "kill", "job_id": 1, "signal": 15});
    let killed = compact(&client.call("exec_background", on(killed)).await);
    assert_eq!(killed, json!({"job_id": 1, "signal": 15, "status": "killed"}));
    let all = json!({"workspace_ids": ["web"], "commands": ["echo x"]});
    let all = compact(&client.call("exec_parallel", all).await);
    assert_eq!(keys(&all), ["results", "summary"]);
    assert_eq!(
        keys(&all["results"][0]),
        ["workspace_id", "workspace_name", "exit_code", "stdout", "stderr", "timed_out"]
    );
    assert_eq!(keys(&all["summary"]), ["total", "succeeded", "failed", "timed_out", "elapsed_ms"]);
}

#[tokio::test]
async fn swarm_and_team_answers_have_contract_members() {
    let (_world, mut client) = connected().await;
    let made = compact(&client.call("workspace_prepare", json!({"name": "gold"})).await);
    assert_eq!(keys(&made), ["workspace_id", "name", "snapshot_name", "snapshot_id", "ip"]);
    let again = compact(&client.call("workspace_prepare", json!({"name": "gold"})).await);
    assert_eq!(keys(&again), ["workspace_id", "name", "snapshot_name", "ip", "reused_existing"]);
    let swarm = json!({"golden_workspace": "gold", "snapshot_name": "golden",
        "tasks": [{"name": "a", "command": "bytes 262145"}, {"name": "b", "command": "bytes 10000"}]});
    let ran = compact(&client.call("swarm_run", swarm).await);
    let is_cut = |at: usize| ran["tasks"][at]["stdout"].as_str().unwrap().contains("[TRUNCATED 262145");
    assert_eq!([is_cut(0), is_cut(1)], [true, false]);
    assert_eq!(keys(&ran), ["swarm_id", "tasks", "summary"]);
    assert_eq!(
        keys(&ran["tasks"][0]),
        ["name", "workspace_id", "success", "exit_code", "stdout", "stderr", "elapsed_ms"]
    );
    assert_eq!(
        keys(&ran["summary"]),
        ["total_tasks", "succeeded", "failed", "total_elapsed_ms", "workers_destroyed", "mcp_bridge"]
    );
    let id = ran["swarm_id"].as_str().unwrap();
    let parts: Vec<&str> = id.split('-').collect();
    assert!(parts[0] == "swarm" && [parts[1].len(), parts[2].len()] == [8, 6] && parts.len() == 4, "{id}");

    let roles = json!([{"name": "ann", "role": "lead", "skills": ["rust"], "description": "d"},
        {"name": "bob", "role": "dev"}]);
    let mut team = async |arguments: Value| compact(&client.call("team", arguments).await);
    let made = team(json!({"action": "create", "name": "web", "roles": roles})).await;
    assert_eq!(keys(&made), ["action", "name", "state", "member_count", "member_workspace_ids", "max_vms"]);
    let status = team(json!({"action": "status", "name": "web"})).await;
    for key in ["action", "name", "state", "created_at", "members", "max_vms", "nesting_depth"] {
        assert!(!status[key].is_null(), "{key} is not in {status}");
    }
    assert_eq!(status.get("parent_team"), Some(&Value::Null));
    for key in ["name", "workspace_id", "ip", "workspace_state", "agent_status"] {
        assert!(!status["members"][0][key].is_null(), "{key} is not in {status}");
    }
    let list = team(json!({"action": "list"})).await;
    assert_eq!(keys(&list["teams"][0]), ["name", "state", "member_count", "created_at", "max_vms"]);
    let message = json!({"action": "message", "name": "web", "agent": "ann", "to": "bob", "content": "x"});
    assert_eq!(keys(&team(message).await), ["action", "message_id", "status", "from", "to"]);
    let received = team(json!({"action": "receive", "name": "web", "agent": "bob"})).await;
    assert_eq!(keys(&received), ["action", "agent", "count", "messages"]);
    assert_eq!(
        keys(&received["messages"][0]),
        ["message_id", "from", "to", "content", "message_type", "timestamp"]
    );
    let gone = team(json!({"action": "destroy", "name": "web"})).await;
    assert_eq!(gone, json!({"action": "destroy", "name": "web", "success": true}));
}

#[tokio::test]
async fn every_failure_has_code_message_and_hint() {
    let (world, mut client) = connected().await;
    create(&mut client, "web").await;
    let mut other = another(&world).await;
    create(&mut other, "theirs").await;
    for (tool, arguments, expected) in [
        ("workspace_info", json!({}), "invalid_arguments"),
        ("exec", json!({"workspace_id": "web"}), "invalid_arguments"),
        ("exec_background", json!({"workspace_id": "web", "action": "dance"}), "invalid_arguments"),
        ("snapshot", json!({"workspace_id": "web", "action": "dance"}), "invalid_arguments"),
        (
            "port_forward",
            json!({"workspace_id": "web", "action": "dance", "guest_port": 1}),
            "invalid_arguments",
        ),
        ("vault", json!({"action": "dance"}), "invalid_arguments"),
        ("team", json!({"action": "dance"}), "invalid_arguments"),
        ("exec", json!({"workspace_id": "nobody", "command": "x"}), "workspace_not_found"),
        ("exec", json!({"workspace_id": "theirs", "command": "x"}), "not_owned"),
        ("workspace_start", json!({"workspace_id": "web"}), "wrong_state"),
        ("exec", json!({"workspace_id": "web", "command": "late", "timeout_secs": 7}), "timed_out"),
        ("exec_background", json!({"workspace_id": "web", "action": "poll", "job_id": 9}), "no_job"),
        ("team", json!({"action": "status", "name": "nosuch"}), "team_not_found"),
        ("vault", json!({"action": "read", "path": "nosuch.md"}), "not_found"),
    ] {
        let answer = client.request("tools/call", Some(json!({"name": tool, "arguments": arguments}))).await;
        let result = &answer["result"];
        assert_eq!((result["isError"].as_bool(), code(result)), (Some(true), expected), "{tool}: {answer}");
        let structured = &result["structuredContent"];
        assert_eq!(keys(structured)[..4], ["code", "message", "hint", "retryable"], "{tool}");
        assert!(
            structured["hint"].is_string() && structured["retryable"].is_boolean(),
            "{tool}: {structured}"
        );
        assert!(text(result).contains(structured["message"].as_str().unwrap()), "{tool}: {result}");
        assert!(text(result).contains(structured["hint"].as_str().unwrap()), "{tool}: {result}");
    }
    let late = json!({"workspace_id": "web", "command": "late", "timeout_secs": 7});
    let late = client.call("exec", late).await;
    assert!(text(&late).contains("timed out") && text(&late).contains('7'), "{late}");
}

#[tokio::test]
async fn default_command_timeouts_match_the_contract() {
    let (_world, mut client) = connected().await;
    create(&mut client, "web").await;
    let late = client.call("exec", json!({"workspace_id": "web", "command": "late"})).await;
    assert!(text(&late).contains("timed out after 120 s"), "{late}");
    let late = client.call("exec_parallel", json!({"workspace_ids": ["web"], "commands": "late"})).await;
    let entry = &compact(&late)["results"][0];
    assert!(entry["stderr"].as_str().unwrap().contains("timed out after 300 s"), "{entry}");
    let late = client.call("workspace_prepare", json!({"name": "p", "setup_commands": ["late"]})).await;
    assert!(text(&late).contains("timed out after 300 s"), "{late}");
    client.call("workspace_prepare", json!({"name": "gold"})).await;
    let swarm = json!({"golden_workspace": "gold", "snapshot_name": "golden",
        "tasks": [{"name": "t", "command": "late"}]});
    let late = client.call("swarm_run", swarm).await;
    let task = &compact(&late)["tasks"][0];
    assert!(task["stderr"].as_str().unwrap().contains("timed out after 600 s"), "{task}");
}
