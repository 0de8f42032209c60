//! Teams with real VMs: network between members, tasks, inboxes, and clean removal.

use std::time::Duration;

use agentiso_testkit::{Client, HostOptions, TestHost, eventually, host_or_skip};
use serde_json::{Value, json};

/// The time limit for a task under emulation on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);

fn team(client: &Client, arguments: Value) -> Value {
    client.tool("team", arguments).json()
}

fn make(client: &Client, name: &str, members: &[&str], parent: Option<&str>) -> Value {
    let roles: Vec<Value> = members.iter().map(|name| json!({"name": name, "role": "worker"})).collect();
    let made = team(client, json!({"action": "create", "name": name, "roles": roles, "parent_team": parent}));
    assert_eq!((&made["state"], &made["member_count"]), (&json!("Ready"), &json!(members.len())), "{made}");
    made
}

fn assign(client: &Client, to: &str, task: Value) {
    let sent = team(
        client,
        json!({"action": "message", "name": "web", "agent": "ann", "to": to, "content": task.to_string(),
            "message_type": "task_assignment"}),
    );
    assert_eq!(sent["status"], "delivered", "{sent}");
}

/// The next results of a member of `web`.
fn results(client: &Client, agent: &str) -> Vec<Value> {
    let mut results = Vec::new();
    eventually("a task ends", PATIENCE, || {
        let received = team(client, json!({"action": "receive", "name": "web", "agent": agent}));
        assert_eq!(received["count"], 0, "a task is no mail: {received}");
        results = received["daemon_results"].as_array().cloned().unwrap_or_default();
        !results.is_empty()
    });
    results
}

fn sh(client: &Client, workspace: &str, command: &str) -> String {
    let ran = client.tool("exec", json!({"workspace_id": workspace, "command": command})).json();
    ran["stdout"].as_str().unwrap().trim_end().to_owned()
}

/// Starts a server in a member's guest that sends a greeting.
fn serve(client: &Client, workspace: &str) {
    let server = "use Socket; socket(S, PF_INET, SOCK_STREAM, 6); setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1); \
                  bind(S, sockaddr_in(7000, INADDR_ANY)) or die; listen(S, 5); \
                  while (accept(C, S)) { print C \"hello\\n\"; close C }";
    let command = format!("perl -e '{server}'");
    client.tool("exec_background", json!({"action": "start", "workspace_id": workspace, "command": command}));
}

/// The greeting that one guest gets from the server of another.
fn greeting(client: &Client, from: &str, ip: &str) -> String {
    read_port(client, from, ip, 7000)
}

/// The data that one guest gets from a port of another, or the error.
fn read_port(client: &Client, from: &str, ip: &str, port: u16) -> String {
    let call = format!(
        "use Socket; socket(S, PF_INET, SOCK_STREAM, 6); alarm 10; \
         connect(S, sockaddr_in({port}, inet_aton(\"{ip}\"))) or do {{ print \"$!\"; exit }}; print <S>"
    );
    sh(client, from, &format!("perl -e '{call}'"))
}

fn ip(client: &Client, workspace: &str) -> String {
    let info = client.tool("workspace_info", json!({"workspace_id": workspace})).json();
    info["ip"].as_str().unwrap().to_owned()
}

#[test]
fn team_members_exchange_messages_and_run_tasks() {
    let notes = tempfile::tempdir().unwrap();
    let config = format!("[vault]\nenabled = true\npath = \"{}\"\n", notes.path().display());
    let host: TestHost = host_or_skip!(HostOptions { config, ..HostOptions::default() });
    let client = host.client();
    make(&client, "web", &["ann", "bob"], None);

    let sent = json!({"action": "message", "name": "web", "agent": "ann", "to": "bob", "content": "hi"});
    assert_eq!(team(&client, sent)["status"], "delivered");
    let received = team(&client, json!({"action": "receive", "name": "web", "agent": "bob"}));
    assert_eq!((&received["count"], &received["messages"][0]["from"]), (&json!(1), &json!("ann")));

    let task = json!({"task_id": "t1", "command": "echo $WORD from $(pwd)", "env": {"WORD": "hello"}});
    assign(&client, "bob", task);
    let result = results(&client, "bob").remove(0);
    assert_eq!(
        (&result["task_id"], &result["success"], &result["exit_code"], &result["stdout"]),
        (&json!("t1"), &json!(true), &json!(0), &json!("hello from /workspace\n")),
        "{result}"
    );
    assign(&client, "bob", json!({"task_id": "t2", "command": "echo begun; sleep 60", "timeout_secs": 2}));
    let late = results(&client, "bob").remove(0);
    assert_eq!((&late["exit_code"], &late["stdout"]), (&json!(-1), &json!("begun\n")), "{late}");
    assert_eq!(sh(&client, "web.bob", "cat /proc/[0-9]*/comm | grep -c sleep || true"), "0", "it was killed");

    assign(&client, "bob", json!({"task_id": "t3", "command": "true", "workdir": "/nosuch"}));
    let nowhere = results(&client, "bob").remove(0);
    assert_eq!((&nowhere["exit_code"], &nowhere["success"]), (&json!(-1), &json!(false)), "{nowhere}");
    assert!(nowhere["stderr"].as_str().unwrap().contains("/nosuch"), "{nowhere}");

    let board = |action: &str, more: Value| {
        let mut arguments = json!({"action": action, "name": "web", "agent": "ann"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        team(&client, arguments)
    };
    let status = |member: usize| {
        let status = team(&client, json!({"action": "status", "name": "web"}));
        status["members"][member]["agent_status"].clone()
    };
    let card = || -> Value {
        serde_json::from_slice(&std::fs::read(notes.path().join("teams/web/cards/ann.json")).unwrap())
            .unwrap()
    };
    let id = board("task_create", json!({"title": "read it"}))["task_id"].clone();
    assert_eq!(board("task_claim", json!({"task_id": id}))["claimed"], true);
    assert_eq!(
        (status(0), &card()["status"], &card()["endpoints"]["http_port"]),
        (json!("Working"), &json!("working"), &json!(8080))
    );
    board("task_complete", json!({"task_id": id}));
    assert_eq!((status(0), &card()["status"]), (json!("Ready"), &json!("ready")));

    let table = host.cli_ok(&["team-status", "web"]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(table.starts_with("team web: Ready, 2 of at most 10 members, "), "{table}");
    assert_eq!(lines[1], ["NAME", "WORKSPACE", "IP", "STATE", "AGENT"], "{table}");
    let ann = client.tool("workspace_info", json!({"workspace_id": "web.ann"})).json();
    let ann = |key: &str| ann[key].as_str().unwrap().to_owned();
    assert_eq!(lines[2], ["ann", &ann("name"), &ann("ip"), "running", "Ready"], "{table}");
    assert_eq!(host.cli(&["team-status", "nosuch"]).status.code(), Some(1));

    team(&client, json!({"action": "destroy", "name": "web"}));
    assert_eq!(team(&client, json!({"action": "list"}))["count"], 0);
    host.assert_no_workspaces_left();
    assert!(notes.path().join("teams/web/cards/bob.json").is_file());
}

#[test]
fn only_team_members_reach_each_other() {
    let host = host_or_skip!();
    let client = host.client();
    make(&client, "web", &["ann", "bob"], None);
    let stranger = client.workspace();
    let bob = ip(&client, "web.bob");
    serve(&client, "web.bob");
    eventually("a member hears another", PATIENCE, || greeting(&client, "web.ann", &bob) == "hello");
    assert_ne!(greeting(&client, &stranger.name, &bob), "hello");

    // Members of a subteam reach those of the parent team, and the subteam ends with it.
    make(&client, "sub", &["cy"], Some("web"));
    assert_eq!(greeting(&client, "sub.cy", &bob), "hello");
    host.kill_daemon();
    let next = host.client();
    next.tool("workspace_adopt", json!({}));
    eventually("it holds for a daemon that comes after", PATIENCE, || {
        greeting(&next, "sub.cy", &bob) == "hello"
    });
    assert_ne!(greeting(&next, &stranger.name, &bob), "hello");
    team(&next, json!({"action": "destroy", "name": "web"}));
    assert_eq!(team(&next, json!({"action": "list"}))["count"], 0);
    next.tool("workspace_destroy", json!({"workspace_id": stranger.id}));
    host.assert_no_workspaces_left();
}

#[test]
fn team_tasks_survive_a_killed_daemon() {
    let host = host_or_skip!();
    let client = host.client();
    make(&client, "web", &["ann", "bob"], None);
    let wait = "while [ ! -e /go ]; do sleep 0.1; done; echo ran >> /ran; echo 1";
    for number in 0..5 {
        assign(&client, "bob", json!({"task_id": format!("t{number}"), "command": wait}));
    }
    // A task that the inbox marks as started is not started again.
    let inbox = || {
        let teams = std::fs::read_dir(host.data().join("mail")).into_iter().flatten().flatten();
        let texts = teams.filter_map(|team| std::fs::read(team.path().join("bob.log")).ok());
        texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect::<String>()
    };
    eventually("four of them run, and the inbox knows", PATIENCE, || {
        inbox().matches("\"deadline\"").count() == 4
    });
    host.kill_daemon();
    // `team-status` needs no daemon, starts none, and changes neither VMs nor the ledger.
    let written = || std::fs::read(host.state_file()).unwrap();
    let (before, vms) = (written(), host.vms());
    let table = host.cli_ok(&["team-status", "web"]);
    assert!(table.contains("team web: Working") && table.contains("bob"), "{table}");
    assert!(written() == before && host.vms() == vms && host.daemon().is_none());
    let next = host.client();
    next.tool("workspace_adopt", json!({}));
    let pending = team(&next, json!({"action": "receive", "name": "web", "agent": "bob"}));
    assert_eq!(pending["daemon_pending_tasks"], 5, "{pending}");
    sh(&next, "web.bob", "touch /go");
    let mut ended = Vec::new();
    while ended.len() < 5 {
        ended.extend(results(&next, "bob"));
    }
    let mut names: Vec<_> = ended.iter().map(|result| result["task_id"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["t0", "t1", "t2", "t3", "t4"]);
    assert!(ended.iter().all(|result| result["stdout"] == "1\n"), "{ended:?}");
    assert_eq!(sh(&next, "web.bob", "wc -l < /ran"), "5", "none ran twice");
    team(&next, json!({"action": "destroy", "name": "web"}));
    host.assert_no_workspaces_left();
}

/// The smallest image has no curl.
const ASK: &str = r#"use Socket;
my ($method, $path, $body) = (@ARGV, "");
socket(S, PF_INET, SOCK_STREAM, 6); alarm 20;
connect(S, sockaddr_in(8080, inet_aton("127.0.0.1"))) or do { print "{}"; exit };
select S; $| = 1; select STDOUT;
print S "$method $path HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Length: ", length($body), "\r\n\r\n$body";
$_ = join "", <S>; s/.*?\r\n\r\n//s; print;
"#;

/// Sends a request from within a member's guest. Returns an empty object if nothing listens.
fn ask(client: &Client, workspace: &str, request: &str) -> Value {
    let said = sh(client, workspace, &format!("perl /root/ask.pl {request}"));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

/// Whether a program could bind the port. It sets SO_REUSEADDR, as servers do, so that only a listener is in the way
/// and not connections that have just ended.
fn port_is_free(client: &Client, workspace: &str) -> bool {
    let bind = "use Socket; socket(S, PF_INET, SOCK_STREAM, 6); setsockopt(S, SOL_SOCKET, SO_REUSEADDR, 1); \
                print bind(S, sockaddr_in(8080, INADDR_ANY)) ? 1 : 0";
    sh(client, workspace, &format!("perl -e '{bind}'")) == "1"
}

fn received(client: &Client, agent: &str) -> Value {
    team(client, json!({"action": "receive", "name": "web", "agent": agent}))
}

#[test]
fn member_inbox_is_served_only_in_its_guest() {
    let host = host_or_skip!();
    let client = host.client();
    make(&client, "web", &["ann", "bob"], None);
    client.tool("file_write", json!({"workspace_id": "web.bob", "path": "/root/ask.pl", "content": ASK}));
    eventually("the port is open", PATIENCE, || ask(&client, "web.bob", "GET /health")["status"] == "ready");
    let health = ask(&client, "web.bob", "GET /health");
    assert!(health["uptime_secs"].is_u64() && health["version"].is_string(), "{health}");

    // A message is delivered once, in the guest or through the tool.
    for content in ["one", "two"] {
        let sent =
            json!({"action": "message", "name": "web", "agent": "ann", "to": "bob", "content": content});
        team(&client, sent);
    }
    let got = ask(&client, "web.bob", "GET /messages");
    assert_eq!((&got["count"], &got["agent"]), (&json!(2), &json!("bob")), "{got}");
    assert_eq!((&got["messages"][0]["from"], &got["messages"][1]["content"]), (&json!("ann"), &json!("two")));
    assert_eq!(received(&client, "bob")["count"], 0);
    assert_eq!(ask(&client, "web.bob", "GET /messages")["count"], 0);

    let sent = ask(&client, "web.bob", r#"POST /messages '{"to": "ann", "content": "done"}'"#);
    assert_eq!((&sent["status"], &sent["from"]), (&json!("delivered"), &json!("bob")), "{sent}");
    let got = received(&client, "ann");
    assert_eq!((&got["count"], &got["messages"][0]["from"]), (&json!(1), &json!("bob")), "{got}");
    let task = r#"POST /messages '{"to": "ann", "content": "{}", "message_type": "task_assignment"}'"#;
    assert_eq!(ask(&client, "web.bob", task)["error"]["code"], "not_allowed");
    let forged = r#"POST /messages '{"from": "ann", "to": "ann", "content": "x"}'"#;
    assert_eq!(ask(&client, "web.bob", forged)["error"]["code"], "bad_message");
    let nobody = r#"POST /messages '{"to": "eve", "content": "x"}'"#;
    assert_eq!(ask(&client, "web.bob", nobody)["error"]["code"], "not_a_member");

    // Members can reach each other's servers, but not this port: it listens on the guest's loopback only.
    let bob = ip(&client, "web.bob");
    serve(&client, "web.bob");
    eventually("a member hears another", PATIENCE, || greeting(&client, "web.ann", &bob) == "hello");
    assert_eq!(read_port(&client, "web.ann", &bob, 8080), "Connection refused");
    assert_eq!(
        read_port(&client, "web.bob", &bob, 8080),
        "Connection refused",
        "not even by its own address"
    );
    let listening = sh(&client, "web.bob", "grep ' 0A ' /proc/net/tcp | awk '{print $2}' | grep ':1F90$'");
    assert_eq!(listening, "0100007F:1F90", "127.0.0.1 and no other address");

    // In other workspaces the port is free, also in a fork with a member's memory.
    assert!(!port_is_free(&client, "web.bob"));
    let snapshot =
        json!({"action": "create", "workspace_id": "web.bob", "name": "s", "include_memory": true});
    client.tool("snapshot", snapshot);
    let fork = json!({"workspace_id": "web.bob", "snapshot_name": "s", "new_name": "copy"});
    client.tool("workspace_fork", fork);
    eventually("a fork is no member", PATIENCE, || port_is_free(&client, "copy"));
    assert_eq!(ask(&client, "copy", "GET /messages"), json!({}));

    // Messages that were not fetched survive a restart of the daemon and of the VM.
    team(
        &client,
        json!({"action": "message", "name": "web", "agent": "ann", "to": "bob", "content": "three"}),
    );
    host.kill_daemon();
    let next = host.client();
    next.tool("workspace_adopt", json!({}));
    next.tool("workspace_stop", json!({"workspace_id": "web.bob"}));
    next.tool("workspace_start", json!({"workspace_id": "web.bob"}));
    let mut got = json!(null);
    eventually("it is served again", PATIENCE, || {
        got = ask(&next, "web.bob", "GET /messages");
        got["count"] == 1
    });
    assert_eq!(got["messages"][0]["content"], "three");
    team(&next, json!({"action": "destroy", "name": "web"}));
    next.tool("workspace_destroy", json!({"workspace_id": "copy"}));
    host.assert_no_workspaces_left();
}
