//! The tool `team` over machines that exist in memory: making and undoing, budgets, mail, whose a team is, its notes.

mod support;

use serde_json::{Value, json};
use support::{Client, World};

struct Teams {
    world: World,
    client: Client,
}

async fn teams() -> Teams {
    let world = support::world().await;
    let client = Client::initialized(world.session(), "full", false).await;
    Teams { world, client }
}

fn roles(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name, "role": "worker"})).collect()
}

fn create(team: &str, members: &[&str]) -> Value {
    json!({"action": "create", "name": team, "roles": roles(members)})
}

fn below(parent: &str, mut create: Value) -> Value {
    create["parent_team"] = parent.into();
    create
}

impl Teams {
    async fn done(&mut self, arguments: Value) -> Value {
        done(&mut self.client, arguments).await
    }

    async fn code(&mut self, arguments: Value) -> String {
        code(&mut self.client, arguments).await
    }

    /// Sends a message without anything special about it.
    async fn send(&mut self, team: &str, from: &str, to: &str, content: &str) -> Value {
        self.done(json!({"action": "message", "name": team, "agent": from, "to": to, "content": content}))
            .await
    }

    async fn receive(&mut self, team: &str, agent: &str) -> Value {
        self.done(json!({"action": "receive", "name": team, "agent": agent})).await
    }

    async fn workspaces(&mut self) -> Vec<String> {
        let listed = self.client.call("workspace_list", json!({})).await;
        let list = listed["structuredContent"]["workspaces"].as_array().unwrap().clone();
        list.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    }

    /// A daemon and a session that come after these.
    async fn restarted(self) -> Self {
        self.client.close().await;
        let world = self.world.restarted().await;
        let client = Client::initialized(world.session(), "full", false).await;
        Self { world, client }
    }

    fn card(&self, team: &str, role: &str) -> Option<Value> {
        let path = self.world.vault().join(format!("teams/{team}/cards/{role}.json"));
        let text = std::fs::read_to_string(path).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }
}

async fn done(client: &mut Client, arguments: Value) -> Value {
    let answer = client.call("team", arguments.clone()).await;
    assert_ne!(answer["isError"], true, "{arguments}: {answer}");
    let text: Value = serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["action"], arguments["action"], "{answer}");
    text
}

async fn code(client: &mut Client, arguments: Value) -> String {
    let answer = client.call("team", arguments.clone()).await;
    assert_eq!(answer["isError"], true, "{arguments}: {answer}");
    assert!(answer["structuredContent"]["hint"].is_string() || arguments["action"].is_null(), "{answer}");
    answer["structuredContent"]["code"].as_str().unwrap().to_owned()
}

async fn begin(client: &mut Client, id: &str, arguments: Value) {
    let params = json!({"name": "team", "arguments": arguments});
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    client.send(&call.to_string()).await;
}

#[tokio::test]
async fn a_team_is_made_used_by_every_name_and_destroyed() {
    let mut t = teams().await;
    let made = t.done(create("web", &["lead", "dev-1"])).await;
    assert_eq!(
        (&made["name"], &made["state"], &made["member_count"], &made["max_vms"]),
        (&json!("web"), &json!("Ready"), &json!(2), &json!(10))
    );
    let ids = made["member_workspace_ids"].as_array().unwrap().clone();
    assert_eq!(ids.len(), 2);

    let status = t.done(json!({"action": "status", "name": "web"})).await;
    assert_eq!(
        (&status["state"], &status["nesting_depth"], &status["parent_team"]),
        (&json!("Ready"), &json!(0), &Value::Null)
    );
    let lead = &status["members"][0];
    assert_eq!(
        (&lead["name"], &lead["workspace_id"], &lead["workspace_state"], &lead["agent_status"]),
        (&json!("lead"), &ids[0], &json!("running"), &json!("Ready"))
    );
    assert!(lead["ip"].is_string());
    let full = lead["workspace_name"].as_str().unwrap().to_owned();
    assert!(full.starts_with("web-lead-") && full.len() == "web-lead-".len() + 4, "{full}");
    for name in ["web-lead", "web.lead", full.as_str()] {
        let info = t.client.call("workspace_info", json!({"workspace_id": name})).await;
        let info = &info["structuredContent"];
        assert_eq!((&info["workspace_id"], &info["team"]), (&ids[0], &json!("web")), "{name}");
    }
    let listed = t.done(json!({"action": "list"})).await;
    assert_eq!((&listed["count"], &listed["teams"][0]["name"]), (&json!(1), &json!("web")));

    // A member that is destroyed by itself leaves its place; whoever takes its name does not take the place.
    t.client.call("workspace_destroy", json!({"workspace_id": "web.lead"})).await;
    let stranger = t.client.call("workspace_create", json!({"name": full})).await;
    assert_eq!(stranger["isError"], false, "{stranger}");
    let status = t.done(json!({"action": "status", "name": "web"})).await;
    assert_eq!(status["members"][0]["workspace_state"], "destroyed");
    let info = t.client.call("workspace_info", json!({"workspace_id": full})).await;
    assert!(info["structuredContent"].get("team").is_none(), "{info}");

    let gone = t.done(json!({"action": "destroy", "name": "web"})).await;
    assert_eq!((&gone["name"], &gone["success"]), (&json!("web"), &json!(true)));
    assert!(!t.done(json!({"action": "list"})).await.to_string().contains("web"));
    assert_eq!(t.workspaces().await, [full]);
    assert_eq!(t.code(json!({"action": "destroy", "name": "web"})).await, "team_not_found");
    t.done(create("web", &["lead"])).await;
}

#[tokio::test]
async fn members_are_forked_from_a_golden_workspace() {
    let mut t = teams().await;
    t.client.call("workspace_prepare", json!({"name": "gold", "setup_commands": ["echo x"]})).await;
    let mut forked = create("web", &["a", "b"]);
    forked["golden_workspace"] = "gold".into();
    t.done(forked.clone()).await;
    let info = t.client.call("workspace_info", json!({"workspace_id": "web.b"})).await;
    let origin = &info["structuredContent"]["forked_from"];
    assert_eq!(
        (&origin["source_workspace_name"], &origin["snapshot_name"]),
        (&json!("gold"), &json!("golden"))
    );
    forked["name"] = "other".into();
    forked["base_snapshot"] = "nosuch".into();
    assert_eq!(t.code(forked).await, "snapshot_not_found");
    let mut lonely = create("other", &["a"]);
    lonely["base_snapshot"] = "golden".into();
    assert_eq!(t.code(lonely).await, "invalid_arguments");
    assert_eq!(t.done(json!({"action": "list"})).await["count"], 1);
}

#[tokio::test]
async fn a_member_that_fails_undoes_the_team() {
    let mut t = teams().await;
    assert_eq!(t.code(create("web", &["a", "broken", "c", "d", "e", "f"])).await, "boot_failed");
    assert_eq!(t.workspaces().await, [""; 0]);
    assert_eq!(t.world.machines.disks.count(), 0);
    assert_eq!(t.done(json!({"action": "list"})).await["count"], 0);
    assert_eq!(t.card("web", "a"), None);
    t.done(create("web", &["a"])).await;
}

#[tokio::test]
async fn a_create_that_nobody_waits_for_any_more_is_undone() {
    let mut t = teams().await;
    t.client.call("workspace_prepare", json!({"name": "gold", "setup_commands": ["echo x"]})).await;
    let mut stuck = create("stuck", &["a", "b"]);
    stuck["golden_workspace"] = "gold".into();
    begin(&mut t.client, "x", stuck).await;
    t.world.machines.waiting_commands(1).await;
    assert_eq!(t.code(json!({"action": "destroy", "name": "stuck"})).await, "team_being_made");
    assert_eq!(t.code(below("stuck", create("child", &["a"]))).await, "team_being_made");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}});
    t.client.send(&cancel.to_string()).await;
    t.world.machines.waiting_commands(0).await;
    let gone = async {
        while t.done(json!({"action": "list"})).await["count"] != 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), gone).await.expect("the team goes");
    assert_eq!(t.workspaces().await, ["gold"]);
}

#[tokio::test]
async fn what_is_wrong_is_named_and_nothing_is_made() {
    let mut t = teams().await;
    for (arguments, expected) in [
        (json!({"action": "creat"}), "invalid_arguments"),
        (json!({"action": "create", "name": "web"}), "invalid_arguments"),
        (json!({"action": "create", "name": "web", "roles": []}), "invalid_arguments"),
        (create("../web", &["a"]), "invalid_arguments"),
        (create("web", &["a/b"]), "invalid_arguments"),
        (create("web", &["a", "a"]), "bad_roles"),
        (
            json!({"action": "create", "name": "web", "roles": roles(&["a", "b"]), "max_vms": 1}),
            "team_budget",
        ),
        (below("nosuch", create("web", &["a"])), "team_not_found"),
        (json!({"action": "status", "name": "nosuch"}), "team_not_found"),
        (json!({"action": "message", "name": "web"}), "invalid_arguments"),
    ] {
        assert_eq!(t.code(arguments.clone()).await, expected, "{arguments}");
    }
    let many: Vec<String> = (0..21).map(|number| format!("r{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let mut large = create("web", &many);
    large["max_vms"] = 50.into();
    assert_eq!(t.code(large).await, "team_budget");
    // More than a session may have.
    assert_eq!(
        t.code({
            let mut quota = create("web", &many[..11]);
            quota["max_vms"] = 20.into();
            quota
        })
        .await,
        "quota_exceeded"
    );
    assert_eq!((t.workspaces().await.len(), t.world.machines.disks.count()), (0, 0));
    t.done(create("web", &["a"])).await;
    assert_eq!(t.code(create("web", &["b"])).await, "team_exists");
}

#[tokio::test]
async fn many_that_ask_at_once_never_exceed_a_budget() {
    let mut t = teams().await;
    let mut top = create("top", &["a"]);
    top["max_vms"] = 4.into();
    t.done(top).await;
    for number in 0..6 {
        begin(&mut t.client, &format!("c{number}"), below("top", create(&format!("c{number}"), &["x"])))
            .await;
    }
    let mut made = 0;
    for _ in 0..6 {
        let answer = t.client.receive().await;
        let result = &answer["result"]["structuredContent"];
        match result["code"].as_str() {
            None => made += 1,
            Some(code) => assert_eq!(code, "team_budget", "{answer}"),
        }
    }
    assert_eq!(made, 3);
    assert_eq!(t.workspaces().await.len(), 4);
}

#[tokio::test]
async fn teams_below_a_team_go_with_it() {
    let mut t = teams().await;
    t.done(create("top", &["a"])).await;
    t.done(below("top", create("mid", &["a"]))).await;
    t.done(below("mid", create("low", &["a"]))).await;
    t.done(below("low", create("deep", &["a"]))).await;
    assert_eq!(t.code(below("deep", create("deeper", &["a"]))).await, "team_too_deep");
    let low = t.done(json!({"action": "status", "name": "low"})).await;
    assert_eq!((&low["nesting_depth"], &low["parent_team"]), (&json!(2), &json!("mid")));
    // The same name of a role in two teams is two members.
    t.send("top", "a", "*", "to nobody").await;
    assert_eq!(t.receive("mid", "a").await["count"], 0);
    t.done(json!({"action": "destroy", "name": "mid"})).await;
    let left = t.done(json!({"action": "list"})).await;
    assert_eq!((&left["count"], &left["teams"][0]["name"]), (&json!(1), &json!("top")));
    assert_eq!(t.workspaces().await.len(), 1);
    t.done(json!({"action": "destroy", "name": "top"})).await;
    assert_eq!(t.world.machines.disks.count(), 0);
}

#[tokio::test]
async fn mail_is_received_once_in_order_and_survives_a_restart() {
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
async fn a_team_is_its_sessions_until_that_is_gone() {
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
    assert_eq!(t.world.machines.disks.count(), 0);
}

#[tokio::test]
async fn the_board_of_a_team_gives_a_task_to_one_member() {
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
async fn a_board_needs_a_vault_and_a_team_does_not() {
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
        "endpoints": {"vsock_cid": null, "http_port": null, "ip": card["endpoints"]["ip"]},
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
async fn creates_and_messages_are_counted() {
    let world = support::world_with("[rate_limit]\nteam_message_per_minute = 1\n").await;
    let mut client = Client::initialized(world.session(), "team", false).await;
    for name in ["a", "b", "c"] {
        done(&mut client, create(name, &["ann", "bob"])).await;
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
