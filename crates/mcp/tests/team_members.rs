//! Members of a team: their messages, their board, their cards, and the session that owns the team.

mod support;

use serde_json::{Value, json};
use support::Client;
use support::teams::{begin, below, code, create, done, teams};

#[tokio::test]
async fn messages_are_received_once_in_order_across_restarts() {
    let mut t = teams().await;
    t.done(create("web", &["ann", "bob", "cy"])).await;
    let sent = t.send("web", "ann", "bob", "hello").await;
    assert_eq!(
        (&sent["status"], &sent["from"], &sent["to"]),
        (&json!("delivered"), &json!("ann"), &json!("bob"))
    );
    let received = t.receive("web", "bob").await;
    assert_eq!((&received["count"], &received["agent"]), (&json!(1), &json!("bob")));
    assert!(received.get("daemon_results").is_none() && received.get("daemon_pending_tasks").is_none());
    let message = &received["messages"][0];
    assert_eq!(
        (&message["message_id"], &message["from"], &message["content"], &message["message_type"]),
        (&sent["message_id"], &json!("ann"), &json!("hello"), &json!("text"))
    );
    assert!(message["timestamp"].is_string());
    assert_eq!(t.receive("web", "bob").await["count"], 0);

    let question = json!({"action": "message", "name": "web", "agent": "ann", "to": "*", "content": "?",
        "message_type": "question"});
    let asked = t.done(question).await;
    for agent in ["bob", "cy"] {
        let message = &t.receive("web", agent).await["messages"][0];
        assert_eq!(
            (&message["message_id"], &message["message_type"], &message["to"]),
            (&asked["message_id"], &json!("question"), &json!("*")),
            "one message for all"
        );
    }

    for number in 0..12 {
        t.send("web", "ann", "*", &number.to_string()).await;
    }
    assert_eq!(t.receive("web", "cy").await["count"], 10, "the default");
    let mut t = t.restarted().await;
    let rest = t.receive("web", "cy").await;
    assert_eq!((&rest["count"], &rest["messages"][0]["content"]), (&json!(2), &json!("10")));
    assert_eq!(t.receive("web", "ann").await["count"], 0);
    let mut t = t.restarted().await;
    assert_eq!(t.receive("web", "cy").await["count"], 0);
    let all = t.done(json!({"action": "receive", "name": "web", "agent": "bob", "limit": 100})).await;
    assert_eq!(all["count"], 12);

    for (from, to) in [("eve", "bob"), ("ann", "eve"), ("", "bob")] {
        let message = json!({"action": "message", "name": "web", "agent": from, "to": to, "content": "x"});
        assert_eq!(t.code(message).await, "not_a_member");
    }
    assert_eq!(t.code(json!({"action": "receive", "name": "web", "agent": "eve"})).await, "not_a_member");
    let long = json!({"action": "message", "name": "web", "agent": "ann", "to": "bob",
        "content": "x".repeat(256 * 1024 + 1)});
    assert_eq!(t.code(long).await, "invalid_arguments");
}

#[tokio::test]
async fn team_belongs_to_its_session_until_it_ends() {
    let mut t = teams().await;
    t.done(create("web", &["ann", "bob"])).await;
    t.send("web", "ann", "bob", "secret").await;
    let mut other = Client::initialized(t.world.session(), "full", false).await;
    assert_eq!(done(&mut other, json!({"action": "status", "name": "web"})).await["state"], "Ready");
    assert_eq!(done(&mut other, json!({"action": "list"})).await["count"], 1);
    done(&mut other, json!({"action": "task_list", "name": "web"})).await;
    for refused in [
        json!({"action": "destroy", "name": "web"}),
        json!({"action": "receive", "name": "web", "agent": "bob"}),
        json!({"action": "message", "name": "web", "agent": "ann", "to": "bob", "content": "forged"}),
        json!({"action": "task_create", "name": "web", "title": "t"}),
        json!({"action": "task_claim", "name": "web", "agent": "ann", "task_id": "task-001"}),
        json!({"action": "task_fail", "name": "web", "task_id": "task-001"}),
        below("web", create("child", &["x"])),
    ] {
        assert_eq!(code(&mut other, refused.clone()).await, "owner_active", "{refused}");
    }
    assert_eq!(t.receive("web", "bob").await["count"], 1);
    t.client.close().await;
    done(&mut other, json!({"action": "destroy", "name": "web"})).await;
    assert_eq!(t.world.vms.disks.count(), 0);
}

#[tokio::test]
async fn board_task_is_claimed_by_one_member() {
    let mut t = teams().await;
    t.done(create("web", &["ann", "bob"])).await;
    let task = |action: &str, agent: &str, more: Value| {
        let mut arguments = json!({"action": action, "name": "web", "agent": agent, "task_id": "task-001"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let made = t
        .done(json!({"action": "task_create", "name": "web", "title": "Design", "content": "All of it.",
            "priority": "high"}))
        .await;
    assert_eq!((&made["task_id"], &made["status"]), (&json!("task-001"), &json!("pending")));
    t.done(json!({"action": "task_create", "name": "web", "title": "Build", "depends_on": ["task-001"]}))
        .await;
    let listed = t.done(json!({"action": "task_list", "name": "web"})).await;
    assert_eq!((&listed["count"], &listed["available"]), (&json!(2), &json!(["task-001"])));

    for (id, agent) in [("1", "ann"), ("2", "bob"), ("3", "ann"), ("4", "bob")] {
        begin(&mut t.client, id, task("task_claim", agent, json!({}))).await;
    }
    let mut winners = 0;
    for _ in 0..4 {
        let answer = t.client.receive().await;
        winners += i32::from(answer["result"]["structuredContent"]["claimed"].as_bool().unwrap());
    }
    assert_eq!(winners, 1);
    let listed = t.done(json!({"action": "task_list", "name": "web"})).await;
    let owner = listed["tasks"][0]["owner"].as_str().unwrap().to_owned();
    let other = if owner == "ann" { "bob" } else { "ann" };
    assert_eq!(t.code(task("task_start", other, json!({}))).await, "not_task_owner");
    assert_eq!(t.code(task("task_claim", "eve", json!({}))).await, "not_a_member");
    t.done(task("task_release", &owner, json!({}))).await;
    t.done(task("task_claim", other, json!({}))).await;
    t.done(task("task_start", other, json!({}))).await;
    let done = t.done(task("task_complete", other, json!({"content": "It is drawn."}))).await;
    assert_eq!(done["status"], "completed");
    let text = std::fs::read_to_string(t.world.vault().join("teams/web/tasks/task-001.md")).unwrap();
    assert!(text.contains("## Result\n\nIt is drawn."), "{text}");
    t.done(json!({"action": "task_fail", "name": "web", "task_id": "task-002", "content": "no time"})).await;
    let listed = t.done(json!({"action": "task_list", "name": "web"})).await;
    assert_eq!((&listed["tasks"][1]["status"], &listed["available"]), (&json!("failed"), &json!([])));
    let unknown = json!({"action": "task_fail", "name": "web", "task_id": "task-009"});
    assert_eq!(t.code(unknown).await, "task_not_found");
    let bad = json!({"action": "task_fail", "name": "web", "task_id": "../x"});
    assert_eq!(t.code(bad).await, "bad_task_id");
}

#[tokio::test]
async fn member_with_board_task_shows_as_working() {
    let mut t = teams().await;
    t.done(create("web", &["ann", "bob"])).await;
    for title in ["Design", "Build", "Test"] {
        t.done(json!({"action": "task_create", "name": "web", "title": title})).await;
    }
    let steps = [
        ("task_claim", "task-001", "Working"),
        ("task_claim", "task-002", "Working"),
        ("task_start", "task-001", "Working"),
        ("task_complete", "task-001", "Working"),
        ("task_fail", "task-002", "Ready"),
        ("task_claim", "task-003", "Working"),
        ("task_release", "task-003", "Ready"),
    ];
    for (action, task, expected) in steps {
        t.done(json!({"action": action, "name": "web", "agent": "ann", "task_id": task})).await;
        let shown = t.done(json!({"action": "status", "name": "web"})).await;
        let status = |member: usize| shown["members"][member]["agent_status"].as_str().unwrap();
        assert_eq!((status(0), status(1)), (expected, "Ready"), "{action} {task}");
        let state = if expected == "Working" { "Working" } else { "Ready" };
        assert_eq!(shown["state"], state, "{action} {task}");
        assert_eq!(t.card("web", "ann").unwrap()["status"], expected.to_lowercase(), "{action} {task}");
    }
}

#[tokio::test]
async fn board_needs_a_vault_but_team_does_not() {
    let world = support::world_without_vault().await;
    let mut client = Client::initialized(world.session(), "team", false).await;
    done(&mut client, create("web", &["a"])).await;
    assert_eq!(code(&mut client, json!({"action": "task_list", "name": "web"})).await, "vault_disabled");
    done(&mut client, json!({"action": "destroy", "name": "web"})).await;
}

#[tokio::test]
async fn every_member_has_a_card() {
    let mut t = teams().await;
    let member = json!([{"name": "ann", "role": "lead", "skills": ["rust"], "description": "decides"}]);
    let made = t.done(json!({"action": "create", "name": "web", "roles": member})).await;
    let card = t.card("web", "ann").unwrap();
    let expected = json!({
        "name": "ann", "role": "lead", "skills": ["rust"], "description": "decides", "team": "web",
        "status": "ready", "workspace_id": made["member_workspace_ids"][0],
        "endpoints": {"vsock_cid": null, "http_port": 8080, "ip": card["endpoints"]["ip"]},
    });
    assert_eq!(card, expected);
    assert!(card["endpoints"]["ip"].is_string());
    for folder in ["cards", "tasks", "notes"] {
        assert!(t.world.vault().join("teams/web").join(folder).is_dir(), "{folder}");
    }
    t.done(json!({"action": "destroy", "name": "web"})).await;
    assert!(t.card("web", "ann").is_some(), "notes stay");
}

#[tokio::test]
async fn team_creates_and_messages_are_rate_limited() {
    // The contract's rate: five permits per second return while the first fifty messages are sent.
    let world = support::world_with("").await;
    let mut client = Client::initialized(world.session(), "team", false).await;
    done(&mut client, create("a", &["ann", "bob"])).await;
    let message = json!({"action": "message", "name": "a", "agent": "ann", "to": "bob", "content": "x"});
    let mut sent = 0;
    let refused = loop {
        let answer = client.call("team", message.clone()).await;
        match answer["isError"] == true {
            false => sent += 1,
            true => break answer,
        }
        assert!(sent < 1000, "messages are not limited");
    };
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(sent >= 50 && text.contains("300 per minute"), "{sent}: {text}");

    let limits = "[rate_limit]\ncreate_per_minute = 1\nteam_message_per_minute = 1\n";
    let world = support::world_with(limits).await;
    let mut client = Client::initialized(world.session(), "team", false).await;
    done(&mut client, create("a", &["ann", "bob"])).await;
    for _ in 1..20 {
        done(&mut client, create("b", &["ann"])).await;
        done(&mut client, json!({"action": "destroy", "name": "b"})).await;
    }
    assert_eq!(code(&mut client, create("d", &["ann"])).await, "rate_limited");
    let message = json!({"action": "message", "name": "a", "agent": "ann", "to": "bob", "content": "x"});
    for _ in 0..50 {
        done(&mut client, message.clone()).await;
    }
    let refused = client.call("team", message).await;
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("rate limit") && text.contains("1 per minute"), "{text}");
}
