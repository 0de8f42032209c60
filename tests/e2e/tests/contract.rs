//! The tool contract as a client of the predecessor uses it, with few real VMs and many checks. Parts that need no
//! guest are tested in `crates/mcp/tests/contract`.

use std::time::{Duration, Instant};

use agentiso_testkit::{Client, HostOptions, TestHost, TestWorkspace, eventually, host_or_skip};
use serde_json::{Value, json};

/// The time that clients allow for the handshake.
const HELLO: Duration = Duration::from_secs(15);

/// The size of a pipe: a client may never read our standard error.
const PIPE: usize = 64 * 1024;

/// Runs something that must finish within the time that clients allow.
fn within<T>(seconds: u64, what: &str, act: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = act();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(seconds), "{what} took {took:?}");
    done
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}")).keys().map(String::as_str).collect()
}

/// Starts a client and completes the handshake in time.
fn greeted(host: &TestHost) -> Client {
    let client = within(HELLO.as_secs(), "the handshake", || {
        let client = host.raw_client(&[]);
        assert_eq!(client.initialize()["protocolVersion"], "2024-11-05");
        client
    });
    client.send(&json!({"jsonrpc": "2.0", "id": 77_777, "method": "tools/list"}));
    eventually("tools are listed without params", Duration::from_secs(30), || {
        client.unsolicited().iter().any(|line| line["id"] == 77_777 && line["result"]["tools"].is_array())
    });
    client
}

fn leave(client: &Client) {
    assert_eq!(
        client.unsolicited().len(),
        1,
        "nothing came that was not asked for: {:?}",
        client.unsolicited()
    );
    assert!(client.stderr().len() < PIPE / 4, "{}", client.stderr());
    assert!(within(5, "the end of serve", || client.hang_up()).success());
    // Every line up to the end was valid JSON.
    eventually("standard output is read to its end", Duration::from_secs(5), || client.is_closed());
}

fn commands_are_run_as_the_contract_says(ws: &TestWorkspace<'_>) {
    assert_eq!(
        ws.sh("test /proc/$$/exe -ef /bin/sh && pwd; id -u; readlink /proc/self/fd/0; ls -d /workspace"),
        "/root\n0\n/dev/null\n/workspace"
    );
    let told =
        within(30, "a timeout", || ws.tool_error("exec", json!({"command": "sleep 60", "timeout_secs": 1})));
    told.mentions(&["timed out", "1"]);
    let long = json!({"command": "printf 'aé%.0s' 1 2 3 4; printf uvwxyz >&2", "max_output_bytes": 5});
    let cut = ws.exec_with(long);
    assert!(cut.stdout.starts_with("aéa\n[TRUNCATED 12 bytes in all, the first 4 shown"), "{cut:?}");
    assert!(cut.stderr.starts_with("uvwxy\n[TRUNCATED 6 bytes in all, the first 5 shown"), "{cut:?}");
    let fits = ws.exec_with(json!({"command": "printf 12345; printf 12345 >&2", "max_output_bytes": 5}));
    assert_eq!((fits.stdout.as_str(), fits.stderr.as_str()), ("12345", "12345"));

    let set = ws.tool("set_env", json!({"vars": {"A": "kept", "B": "kept"}})).json();
    assert_eq!(set, json!({"count": 2, "status": "set"}));
    assert_eq!(ws.tool("set_env", json!({"vars": {}})).json(), json!({"count": 0, "status": "set"}));
    let echo = json!({"command": "echo $A $B; pwd", "env": {"B": "given"}});
    assert_eq!(ws.tool("exec", echo.clone()).json()["stdout"], "kept given\n/root\n");
    let mut start = echo;
    start["action"] = json!("start");
    for (id, directory) in [(1, None), (2, Some("/workspace"))] {
        start["workdir"] = json!(directory);
        let job = within(10, "the start of a job", || ws.tool("exec_background", start.clone())).json();
        assert_eq!(job, json!({"job_id": id, "status": "started"}));
        let poll = json!({"action": "poll", "job_id": id});
        let mut ended = Value::Null;
        eventually("the job ends", Duration::from_secs(30), || {
            ended = within(10, "a poll", || ws.tool("exec_background", poll.clone())).json();
            ended["running"] == false
        });
        let said = format!("kept given\n{}\n", directory.unwrap_or("/root"));
        assert_eq!((&ended["exit_code"], &ended["stdout"]), (&json!(0), &json!(said)), "{ended}");
    }
    for name in ["PATH", "IFS", "ENV", "BASH_ENV", "LD_X", "1A", "A-B", ""] {
        ws.tool_error("set_env", json!({"vars": {"C": "not set", name: "x"}}));
    }
    assert_eq!(ws.sh("echo \"[$C]\""), "[]", "all of them or none");
}

fn files_are_as_the_contract_says(ws: &TestWorkspace<'_>) {
    for (mode, expected) in [("0644", "644"), ("644", "644"), ("0o600", "600"), ("0755", "755")] {
        let write = json!({"path": "/root/d/f.txt", "content": "a\nb a\n", "mode": mode});
        within(10, "a write", || ws.tool("file_write", write)).mentions(&["/root/d/f.txt"]);
        assert_eq!(ws.sh("stat -c %a /root/d/f.txt"), expected);
    }
    let edit = json!({"path": "/root/d/f.txt", "old_string": "a", "new_string": "c"});
    within(10, "an edit", || ws.tool("file_edit", edit));
    let read = within(10, "a read", || ws.read("/root/d/f.txt"));
    assert_eq!(read, "c\nb a\n", "the text itself, and the first occurrence alone");
    ws.sh("mkdir /root/d/B; touch /root/d/B/below; ln -s f.txt /root/d/l; touch /root/d/.h");
    let list = within(10, "a listing", || ws.tool("file_list", json!({"path": "/root/d"}))).json();
    let column = |key: &str| list.as_array().unwrap().iter().map(|one| one[key].clone()).collect::<Vec<_>>();
    assert_eq!(column("name"), [".h", "B", "f.txt", "l"]);
    assert_eq!(column("kind"), ["file", "dir", "file", "symlink"]);
    assert_eq!(keys(&list[2]), ["name", "kind", "size", "permissions", "modified"]);
    assert_eq!((&list[2]["permissions"], &list[2]["size"]), (&json!("rwxr-xr-x"), &json!(6)));
}

fn git_answers_as_the_contract_says(ws: &TestWorkspace<'_>) {
    let none = ws.tool("git_status", json!({"path": "/root"})).json();
    assert_eq!((keys(&none), &none["error"]), (vec!["error", "message"], &json!("not_a_git_repository")));
    ws.sh("cd /workspace && git init -q -b main && git config user.name A && git config user.email a@example.com");
    ws.write("/workspace/it's \"one\"", "1\n");
    let status = ws.tool("git_status", json!({})).json();
    for key in ["branch", "ahead", "behind", "staged", "modified", "untracked", "conflicted", "dirty"] {
        assert!(status.get(key).is_some(), "{key} is not in {status}");
    }
    assert_eq!((&status["untracked"], &status["dirty"]), (&json!(["it's \"one\""]), &json!(true)));
    assert_eq!(ws.tool("workspace_git_status", json!({})).json(), status);
    assert_eq!(ws.tool("git_diff", json!({})).json(), json!({"diff": "", "truncated": false}));
    let made = ws.tool("git_commit", json!({"message": "first"})).json();
    assert_eq!(keys(&made), ["commit_sha", "short_sha", "branch", "summary"]);
    assert_eq!(made["commit_sha"].as_str().unwrap()[..7], *made["short_sha"].as_str().unwrap());
    assert_eq!(ws.tool("git_status", json!({})).json()["dirty"], false);
    let again = ws.tool("git_commit", json!({"message": "second"})).json();
    assert_eq!((keys(&again), &again["status"]), (vec!["status", "message"], &json!("nothing_to_commit")));
}

/// Runs a swarm of two workers that get context and variables and commit a file each. Both files are merged into the
/// golden workspace.
fn a_swarm_is_told_everything_and_merged(client: &Client) {
    let command = "cat $SHARED_CONTEXT $VAULT_CONTEXT; echo $SHARED_CONTEXT $VAULT_CONTEXT $ALL $OWN; \
                   echo x > $OWN.txt && git add -A && git commit -q -m $OWN";
    let task = |name: &str| json!({"name": name, "command": command, "env": {"OWN": name}});
    let swarm = json!({"golden_workspace": "gold", "snapshot_name": "golden", "tasks": [task("b"), task("a")],
        "env_vars": {"ALL": "all", "OWN": "nobody"}, "shared_context": "shared\n", "merge_strategy": "sequential",
        "vault_context": [{"kind": "read", "query": "plan.md"}]});
    let ran = within(300, "a swarm", || client.tool("swarm_run", swarm)).json();
    for (task, name) in ran["tasks"].as_array().unwrap().iter().zip(["a", "b"]) {
        let out = task["stdout"].as_str().unwrap();
        let last = format!("/tmp/.shared-context /tmp/.vault-context all {name}\n");
        assert!(task["name"] == name && task["success"] == true && out.ends_with(&last), "{task}");
        assert!(out.starts_with("shared\n# Project Knowledge Base\n") && out.contains("use sqlite"), "{out}");
    }
    let detail: Value = serde_json::from_str(ran["merge"]["detail"].as_str().unwrap()).unwrap();
    assert_eq!(
        keys(&detail),
        ["success", "strategy", "total_commits_applied", "merged_sources", "conflicts", "results"]
    );
    let list =
        json!({"workspace_id": "gold", "command": "ls /workspace; git -C /workspace log --format=%s -2"});
    assert_eq!(client.tool("exec", list).json()["stdout"], "a.txt\nb.txt\nit's \"one\"\na\nb\n");
}

#[test]
fn predecessor_client_workflow_still_works() {
    let notes = tempfile::tempdir().unwrap();
    std::fs::write(notes.path().join("plan.md"), "# Plan\nuse sqlite\n").unwrap();
    let config = format!("[vault]\nenabled = true\npath = \"{}\"\n", notes.path().display());
    let host = host_or_skip!(HostOptions { config, ..HostOptions::default() });
    let client = greeted(&host);
    assert!(host.data().join("transfers").is_dir(), "made at the start");
    within(30, "a refusal", || client.tool_error("workspace_prepare", json!({"name": "../x"})));
    let ws = within(120, "a create", || client.workspace_with(json!({"name": "gold"})));
    commands_are_run_as_the_contract_says(&ws);
    let all = json!({"workspace_ids": ["gold"], "commands": "echo $A $B; pwd", "env": {"B": "given"}});
    assert_eq!(client.tool("exec_parallel", all).json()["results"][0]["stdout"], "kept given\n/root\n");
    files_are_as_the_contract_says(&ws);
    git_answers_as_the_contract_says(&ws);
    let ready = within(180, "preparing", || client.tool("workspace_prepare", json!({"name": "gold"}))).json();
    assert_eq!((&ready["workspace_id"], &ready["snapshot_name"]), (&json!(ws.id), &json!("golden")));
    let again =
        within(60, "preparing again", || client.tool("workspace_prepare", json!({"name": "gold"}))).json();
    assert_eq!((&again["workspace_id"], &again["reused_existing"]), (&json!(ws.id), &json!(true)));
    a_swarm_is_told_everything_and_merged(&client);
    within(60, "a snapshot", || ws.snapshot("later"));
    let forks = within(180, "two forks", || ws.fork_many("later", 2, "kid"));
    let all = json!({"workspace_ids": ["kid-1", forks[1].id], "commands": "hostname; cat /workspace/a.txt"});
    let all = within(60, "commands in both", || client.tool("exec_parallel", all)).json();
    let said = |at: usize| all["results"][at]["stdout"].clone();
    assert_eq!([said(0), said(1)], ["kid-1\nx\n", "kid-2\nx\n"]);
    for fork in forks {
        within(60, "a destroy", || fork.destroy());
    }
    within(60, "a delete", || ws.delete_snapshot("later"));

    ws.tool("network_policy", json!({"allow_internet": true, "allowed_ports": [80]}));
    let forward = ws.tool("port_forward", json!({"guest_port": 80})).json();
    let ip = ws.created["ip"].clone();
    let state = host.state();
    assert!(state["schema_version"].as_u64().unwrap() >= 1 && state["teams"].is_object(), "{state}");
    for key in ["session_id", "workspace_ids", "created_at"] {
        assert!(!state["sessions"][0][key].is_null(), "{key} is not in {}", state["sessions"]);
    }
    assert!(!host.state_file().with_extension("json.tmp").exists());
    leave(&client);

    // The next daemon takes over everything that a killed one leaves, and answers before it has checked all of it.
    host.kill_daemon();
    let next = greeted(&host);
    let adopted = next.tool("workspace_adopt", json!({})).json();
    assert_eq!(
        (&adopted["adopted_count"], &adopted["adopted"][0]["workspace_id"]),
        (&json!(1), &json!(ws.id))
    );
    let info = next.tool("workspace_info", json!({"workspace_id": "gold"})).json();
    assert_eq!((&info["state"], &info["ip"]), (&json!("running"), &ip), "{info}");
    assert_eq!(info["snapshots"][0]["name"], "golden");
    assert_eq!(
        info["network"],
        json!({"allow_internet": true, "allow_inter_vm": false, "allowed_ports": [80],
            "port_forwards": [{"host_port": forward["host_port"], "guest_port": 80}]})
    );
    within(60, "a stop", || next.tool("workspace_stop", json!({"workspace_id": "gold"})))
        .mentions(&["stopped"]);
    for (tool, more) in
        [("exec", json!({"command": "true"})), ("file_read", json!({"path": "/etc/hostname"}))]
    {
        let mut arguments = more;
        arguments["workspace_id"] = json!("gold");
        next.tool_error(tool, arguments).mentions(&["not running"]);
    }
    let restore = json!({"workspace_id": "gold", "action": "restore", "name": "golden"});
    within(120, "a restore", || next.tool("snapshot", restore));
    let look = json!({"workspace_id": "gold", "command": "ls /workspace; echo \"[$A]\""});
    assert_eq!(next.tool("exec", look).json()["stdout"], "it's \"one\"\n[]\n", "it runs, as it was prepared");
    within(60, "a destroy", || next.tool("workspace_destroy", json!({"workspace_id": "gold"})))
        .mentions(&["destroyed"]);
    leave(&next);
    host.assert_no_workspaces_left();
}

#[test]
fn member_task_is_done_within_client_timeout() {
    let host = host_or_skip!();
    let client = host.client();
    let team = |arguments: Value| client.tool("team", arguments).json();
    let roles = json!([{"name": "ann", "role": "lead"}, {"name": "bob", "role": "dev"}]);
    within(180, "a team", || team(json!({"action": "create", "name": "web", "roles": roles})));
    let content = json!({"task_id": "t", "command": "echo hi"}).to_string();
    let assign = json!({"action": "message", "name": "web", "agent": "ann", "to": "bob", "content": content,
        "message_type": "task_assignment"});
    within(13, "a task", || {
        let sent = team(assign);
        let mut results = Value::Null;
        eventually("it is done", Duration::from_secs(60), || {
            let received = team(json!({"action": "receive", "name": "web", "agent": "bob"}));
            assert_eq!(received["messages"], json!([]), "a task is no mail");
            results = received["daemon_results"].clone();
            results.is_array()
        });
        let result = &results[0];
        assert_eq!((&result["task_id"], &result["stdout"]), (&json!("t"), &json!("hi\n")));
        assert_eq!(result["source_message_id"], sent["message_id"]);
    });
    assert!(host.state()["teams"]["web"].is_object(), "by name");
    within(120, "the end of a team", || team(json!({"action": "destroy", "name": "web"})));
    host.assert_no_workspaces_left();
}
