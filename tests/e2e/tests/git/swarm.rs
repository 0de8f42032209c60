//! Swarms: forks of a prepared workspace whose commits are merged, with nothing left afterwards.

use std::time::Duration;

use agentiso_testkit::{Client, HostOptions, TestHost, eventually, host_or_skip};
use serde_json::{Value, json};

#[test]
fn swarm_commits_merge_and_workers_are_destroyed() {
    let host = host_or_skip!(HostOptions { max_workspaces: 8, ..HostOptions::default() });
    let client = host.client();
    let setup = [
        "[ \"$(pwd)\" = /root ]",
        "cd /workspace && git init -q -b main && git config user.name Gold && git config user.email g@example.com",
        "cd /workspace && echo 1 > a && git add a && git commit -q -m one && echo 2 > b && git add b && git commit -q -m two",
    ];
    let failed = json!({"name": "gold", "setup_commands": ["echo begun", "echo oops >&2; exit 7"]});
    client.tool_error("workspace_prepare", failed).mentions(&["2/2", "exit code 7", "oops"]);
    host.assert_no_workspaces_left();
    let prepared = client.tool("workspace_prepare", json!({"name": "gold", "setup_commands": setup})).json();
    let again = client.tool("workspace_prepare", json!({"name": "gold"})).json();
    assert_eq!(
        (&again["workspace_id"], &again["reused_existing"]),
        (&prepared["workspace_id"], &json!(true))
    );

    // A running process is part of every fork.
    let exec_in = |workspace: &str, command: &str| {
        let answer = client.tool("exec", json!({"workspace_id": workspace, "command": command})).json();
        assert_eq!(answer["exit_code"], 0, "{command}: {answer}");
        answer["stdout"].as_str().unwrap().to_owned()
    };
    exec_in(
        "gold",
        "(while :; do date +%s%N > /tmp/beat; sleep 0.2; done) >/dev/null 2>&1 & echo $! > /tmp/pid",
    );
    let target = json!({"workspace_id": "gold", "snapshot_name": "golden", "new_name": "target"});
    let target = client.tool("workspace_fork", target).json()["workspace_id"].clone();
    let live = json!({"workspace_id": "gold", "action": "create", "name": "live", "include_memory": true});
    client.tool("snapshot", live);
    let task = |name: &str, then: &str| {
        let command = format!(
            "kill -0 $(cat /tmp/pid) && test \"$(cat $SHARED_CONTEXT)\" = context && echo $WHO > {name}.txt && \
             git add -A && git commit -q -m 'task {name}' && {then}"
        );
        json!({"name": name, "command": command, "env": {"WHO": format!("{name} of {{}}")}})
    };
    let tasks = [task("x", "echo done"), task("y", "true"), task("z", "exit 3")];
    let arguments = json!({
        "golden_workspace": "gold", "snapshot_name": "live", "tasks": tasks, "max_parallel": 2, "env_vars": {"WHO": "all"},
        "shared_context": "context", "merge_strategy": "sequential", "merge_target": "target",
    });
    let done = client.tool("swarm_run", arguments).json();
    let codes: Vec<&Value> = (0..3).map(|n| &done["tasks"][n]["exit_code"]).collect();
    assert_eq!(codes, [&json!(0), &json!(0), &json!(3)], "{done}");
    assert_eq!(done["tasks"][0]["stdout"], "done\n");
    assert_eq!(done["summary"]["workers_destroyed"], 3);
    assert_eq!(done["merge"]["target_workspace"], target);
    let detail: Value = serde_json::from_str(done["merge"]["detail"].as_str().unwrap()).unwrap();
    assert_eq!((&detail["success"], &detail["total_commits_applied"]), (&json!(true), &json!(2)), "{detail}");
    assert_eq!(
        exec_in(
            "target",
            "cd /workspace && cat x.txt y.txt; ls z.txt 2>/dev/null; git log --format=%s | head -2"
        ),
        "x of {}\ny of {}\ntask y\ntask x\n"
    );
    assert_eq!(exec_in("gold", "ls /workspace"), "a\nb\n", "nothing came there");
    client.tool("workspace_destroy", json!({"workspace_id": "target"}));
    assert_eq!(client.tool("workspace_list", json!({})).json().as_array().unwrap().len(), 1);

    // A swarm ends when its client disconnects.
    let endless = json!({"golden_workspace": "gold", "snapshot_name": "golden",
        "tasks": [{"name": "a", "command": "sleep 1000"}, {"name": "b", "command": "sleep 1000"}]});
    let _never = client.start_tool("swarm_run", endless);
    eventually("the workers run", Duration::from_secs(120), || host.vms().len() == 3);
    client.kill();
    eventually("the workers are gone", Duration::from_secs(60), || host.vms().len() == 1);
    let next = host.client();
    next.tool("workspace_adopt", json!({}));
    next.tool("workspace_destroy", json!({"workspace_id": "gold"}));
    host.assert_no_workspaces_left();
}

fn names(client: &Client) -> Vec<Value> {
    let list = client.tool("workspace_list", json!({})).json();
    list.as_array().unwrap().iter().map(|one| one["name"].clone()).collect()
}

#[test]
fn unfinished_swarm_ends_with_its_daemon() {
    let host = host_or_skip!();
    let client = host.client();
    let gold = client.workspace_with(json!({"name": "gold"}));
    gold.snapshot_with_memory("live");
    client.hang_up();
    let task = |name: &str| json!({"name": name, "command": "sleep 1000"});
    // Workers that were to stay are destroyed as well, because no client knows of them.
    for (end, cleanup) in [(TestHost::kill_daemon as fn(&TestHost), true), (TestHost::stop_daemon, false)] {
        let client = host.client();
        client.tool("workspace_adopt", json!({}));
        let swarm = json!({"golden_workspace": "gold", "snapshot_name": "live", "cleanup": cleanup,
            "tasks": [task("a"), task("b")]});
        let _never = client.start_tool("swarm_run", swarm);
        eventually("the workers run", Duration::from_secs(120), || {
            let running = client.tool("workspace_list", json!({"state_filter": "running"})).json();
            running.as_array().unwrap().len() == 3 && host.vms().len() == 3
        });
        end(&host);
        let left = host.workspace_dirs();
        assert_eq!(left, if cleanup { 3 } else { 1 }, "only a crash leaves something for the next daemon");
        let next = host.client();
        eventually("the workers are gone", Duration::from_secs(60), || names(&next) == ["gold"]);
        eventually("and all of theirs", Duration::from_secs(30), || {
            host.workspace_dirs() == 1 && host.vms().len() == usize::from(cleanup)
        });
    }
    host.client().tool("workspace_destroy", json!({"workspace_id": "gold"}));
    host.assert_no_workspaces_left();
}
