//! Messages of team members, for programs inside their VMs.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use serde_json::{Value, json};
use support::local::{Ports, Program};
use support::teams::{Teams, create, teams};

/// A team of ann and bob, and the workspace of bob.
async fn team() -> (Teams, Ports, WorkspaceId) {
    let mut t = teams().await;
    let made = t.done(create("web", &["ann", "bob"])).await;
    let id = serde_json::from_value(made["member_workspace_ids"][1].clone()).unwrap();
    let ports = t.world.vms.ports.clone();
    opened(&ports, id).await;
    (t, ports, id)
}

async fn opened(ports: &Ports, id: WorkspaceId) {
    let open = async {
        while !ports.is_open(id) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), open).await.expect("somebody listens");
}

/// The file of a member's inbox.
fn inbox(state_file: &Path, role: &str) -> PathBuf {
    let mail = state_file.with_file_name("mail");
    let mut teams = std::fs::read_dir(&mail).unwrap();
    teams.next().unwrap().unwrap().path().join(format!("{role}.log"))
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost:8080\r\n\r\n")
}

fn post(body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!("POST /messages HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// The status and the body of an answer.
fn read(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn message_stays_until_one_reader_takes_it() {
    let (mut t, ports, bob) = team().await;
    let (status, health) = read(&ports.ask(bob, Program::Reads, &get("/health")).await);
    let expected = json!({"status": "ready", "version": env!("CARGO_PKG_VERSION"), "uptime_secs": 5});
    assert_eq!((status, health), (200, expected));

    let sent = t.send("web", "ann", "bob", "one").await;
    t.send("web", "ann", "*", "two").await;
    let (status, got) = read(&ports.ask(bob, Program::Reads, &get("/messages")).await);
    assert_eq!(
        (status, &got["team"], &got["agent"], &got["count"]),
        (200, &json!("web"), &json!("bob"), &json!(2))
    );
    let first = &got["messages"][0];
    assert_eq!(
        (&first["message_id"], &first["from"], &first["content"], &first["message_type"]),
        (&sent["message_id"], &json!("ann"), &json!("one"), &json!("text"))
    );
    assert_eq!(t.receive("web", "bob").await["count"], 0);
    assert_eq!(read(&ports.ask(bob, Program::Reads, &get("/messages")).await).1["count"], 0);

    t.send("web", "ann", "bob", "three").await;
    let (_, lost) = read(&ports.ask(bob, Program::Dies, &get("/messages")).await);
    assert_eq!(lost["count"], 1);
    t.send("web", "ann", "bob", "four").await;
    let mut found = Vec::new();
    let both = async {
        while found.len() < 2 {
            let received = t.receive("web", "bob").await;
            found.extend(received["messages"].as_array().unwrap().iter().map(|m| m["content"].clone()));
        }
    };
    tokio::time::timeout(Duration::from_secs(30), both).await.expect("both messages");
    found.sort_by_key(ToString::to_string);
    assert_eq!(found, [json!("four"), json!("three")]);
}

#[tokio::test]
async fn dying_reader_changes_neither_inbox_nor_ledger() {
    let (mut t, ports, bob) = team().await;
    t.send("web", "ann", "bob", "precious").await;
    let state = t.world.state_file();
    let inbox = inbox(&state, "bob");
    let mail = || String::from_utf8_lossy(&std::fs::read(&inbox).unwrap()).into_owned();
    let ledger = || std::fs::read_to_string(&state).unwrap();
    let before = (mail(), ledger());
    assert!(before.0.contains("precious") && !before.1.contains("precious"), "{before:?}");
    for _ in 0..5 {
        // If the daemon does not know yet that the previous reader died, the answer is empty.
        let (status, _) = read(&ports.ask(bob, Program::Dies, &get("/messages")).await);
        assert_eq!(status, 200);
    }
    assert_eq!((mail(), ledger()), before);
    let handed_over = async {
        while read(&ports.ask(bob, Program::Reads, &get("/messages")).await).1["count"] != 1 {}
        while mail().contains("precious") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), handed_over).await.expect("it is handed over");
}

#[tokio::test]
async fn host_errors_are_hidden_from_the_guest() {
    let (mut t, ports, bob) = team().await;
    // Creates the directory of the team's messages: bob has a message, ann has none yet.
    t.send("web", "ann", "bob", "first").await;
    let inbox = inbox(&t.world.state_file(), "bob").with_file_name("ann.log");
    std::os::unix::fs::symlink("/dev/full", inbox).unwrap();
    let letter = post(&json!({"to": "ann", "content": "x"}));
    let answer = ports.ask(bob, Program::Reads, &letter).await;
    assert_eq!((read(&answer).0, &read(&answer).1["error"]["code"]), (503, &json!("unavailable")));
    assert!(!answer.contains("ann.log"), "{answer}");
}

#[tokio::test]
async fn guest_program_sends_only_as_its_member() {
    let (mut t, ports, bob) = team().await;
    let letter = json!({"to": "ann", "content": "hello", "message_type": "note"});
    let (status, sent) = read(&ports.ask(bob, Program::Reads, &post(&letter)).await);
    assert_eq!((status, &sent["status"], &sent["from"]), (200, &json!("delivered"), &json!("bob")));
    let got = t.receive("web", "ann").await;
    let message = &got["messages"][0];
    assert_eq!(
        (&message["message_id"], &message["from"], &message["message_type"]),
        (&sent["message_id"], &json!("bob"), &json!("note"))
    );
    let task = json!({"task_id": "t", "command": "echo x"}).to_string();
    let cases = [
        (post(&json!({"to": "ann", "content": task, "message_type": "task_assignment"})), 403, "not_allowed"),
        (post(&json!({"from": "ann", "to": "ann", "content": "forged"})), 400, "bad_message"),
        (post(&json!({"to": "ann"})), 400, "bad_message"),
        (post(&json!([])), 400, "bad_message"),
        (post(&json!({"to": "eve", "content": "x"})), 400, "not_a_member"),
        (post(&json!({"to": "ann", "content": "x", "message_type": "y".repeat(65)})), 400, "bad_message"),
        (post(&json!({"to": "ann", "content": "x".repeat(256 * 1024 + 1)})), 413, "message_too_long"),
        (post(&json!({"to": "ann", "content": "x".repeat(1 << 21)})), 413, "too_large"),
        (get("/other"), 404, "not_found"),
        (get("/messages").replace("GET", "DELETE"), 405, "method_not_allowed"),
        (get("/health").replace("localhost", "evil.example"), 403, "forbidden"),
    ];
    for (request, status, code) in cases {
        let shown: String = request.chars().take(200).collect();
        let answer = read(&ports.ask(bob, Program::Reads, &request).await);
        assert_eq!((answer.0, &answer.1["error"]["code"]), (status, &json!(code)), "{shown}");
    }
    let received = t.receive("web", "ann").await;
    assert_eq!((&received["count"], received.get("daemon_pending_tasks")), (&json!(0), None));
}

#[tokio::test]
async fn messages_from_guests_are_always_rate_limited() {
    let (mut t, ports, bob) = team().await;
    let letter = post(&json!({"to": "ann", "content": "x"}));
    let mut refused = None;
    for _ in 0..200 {
        let answer = ports.ask(bob, Program::Reads, &letter).await;
        if read(&answer).0 == 429 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a limit");
    assert!(refused.contains("Retry-After: ") && refused.contains("rate limit"), "{refused}");
    t.send("web", "ann", "bob", "others go on").await;
}

#[tokio::test]
async fn message_port_is_open_only_in_member_vms() {
    let (mut t, ports, bob) = team().await;
    t.client.call("workspace_create", json!({"name": "stranger"})).await;
    let snapshot = json!({"action": "create", "workspace_id": "web.bob", "name": "s"});
    t.client.call("snapshot", snapshot).await;
    let fork = json!({"workspace_id": "web.bob", "snapshot_name": "s", "new_name": "copy"});
    t.client.call("workspace_fork", fork).await;
    t.client.call("workspace_stop", json!({"workspace_id": "web.bob"})).await;
    let shut = async {
        while ports.is_open(bob) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), shut).await.expect("it ends with the VM");
    t.client.call("workspace_start", json!({"workspace_id": "web.bob"})).await;
    opened(&ports, bob).await;
    for name in ["stranger", "copy"] {
        let info = t.client.call("workspace_info", json!({"workspace_id": name})).await;
        let id = serde_json::from_value(info["structuredContent"]["workspace_id"].clone()).unwrap();
        assert!(!ports.is_open(id), "{name}");
    }
    t.send("web", "ann", "bob", "kept").await;
    let mut t = t.restarted().await;
    t.client.call("workspace_adopt", json!({})).await;
    t.client.call("workspace_start", json!({"workspace_id": "web.bob"})).await;
    let ports = t.world.vms.ports.clone();
    opened(&ports, bob).await;
    let (_, got) = read(&ports.ask(bob, Program::Reads, &get("/messages")).await);
    assert_eq!(got["messages"][0]["content"], "kept");
}
