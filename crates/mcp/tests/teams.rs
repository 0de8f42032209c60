//! The tool `team` over VMs that exist in memory: creation and destruction, names, budgets, nested teams.

mod support;

use serde_json::{Value, json};
use support::teams::{begin, below, create, roles, teams};

#[tokio::test]
async fn team_is_created_addressed_and_destroyed() {
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

    // A member that is destroyed by itself stays listed; a new workspace of its name does not become a member.
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
    let again = json!({"workspace_id": "gold", "action": "create", "name": "again"});
    t.client.call("snapshot", again).await;
    forked["name"] = "second".into();
    forked["base_snapshot"] = "again".into();
    t.done(forked.clone()).await;
    let info = t.client.call("workspace_info", json!({"workspace_id": "second.a"})).await;
    assert_eq!(info["structuredContent"]["forked_from"]["snapshot_name"], "again");
    forked["name"] = "other".into();
    forked["base_snapshot"] = "nosuch".into();
    assert_eq!(t.code(forked).await, "snapshot_not_found");
    let mut lonely = create("other", &["a"]);
    lonely["base_snapshot"] = "golden".into();
    assert_eq!(t.code(lonely).await, "invalid_arguments");
    assert_eq!(t.done(json!({"action": "list"})).await["count"], 2);
}

#[tokio::test]
async fn failed_member_undoes_the_team() {
    let mut t = teams().await;
    assert_eq!(t.code(create("web", &["a", "broken", "c", "d", "e", "f"])).await, "boot_failed");
    assert_eq!(t.workspaces().await, [""; 0]);
    assert_eq!(t.world.vms.disks.count(), 0);
    assert_eq!(t.done(json!({"action": "list"})).await["count"], 0);
    assert_eq!(t.card("web", "a"), None);
    t.done(create("web", &["a"])).await;
}

#[tokio::test]
async fn cancelled_team_create_is_undone() {
    let mut t = teams().await;
    t.client.call("workspace_prepare", json!({"name": "gold", "setup_commands": ["echo x"]})).await;
    let mut stuck = create("stuck", &["a", "b"]);
    stuck["golden_workspace"] = "gold".into();
    begin(&mut t.client, "x", stuck).await;
    // Waits for both members: there may never be a moment at which only one waits.
    t.world.vms.waiting_commands(2).await;
    let status = t.done(json!({"action": "status", "name": "stuck"})).await;
    assert_eq!(
        (&status["state"], &status["members"][0]["agent_status"]),
        (&json!("Creating"), &json!("Initializing"))
    );
    assert_eq!(t.card("stuck", "a").unwrap()["status"], "initializing");
    assert_eq!(t.code(json!({"action": "destroy", "name": "stuck"})).await, "team_being_made");
    assert_eq!(t.code(below("stuck", create("child", &["a"]))).await, "team_being_made");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}});
    t.client.send(&cancel.to_string()).await;
    t.world.vms.waiting_commands(0).await;
    let gone = async {
        while t.done(json!({"action": "list"})).await["count"] != 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), gone).await.expect("the team goes");
    assert_eq!(t.workspaces().await, ["gold"]);
    assert_eq!(t.card("stuck", "a"), None);
}

#[tokio::test]
async fn refused_team_calls_create_nothing() {
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
    assert_eq!(t.code(create("web", &many[..11])).await, "team_budget", "ten, if a call does not say");
    // More than the quota of a session.
    assert_eq!(
        t.code({
            let mut quota = create("web", &many[..11]);
            quota["max_vms"] = 20.into();
            quota
        })
        .await,
        "quota_exceeded"
    );
    assert_eq!((t.workspaces().await.len(), t.world.vms.disks.count()), (0, 0));
    t.done(create("web", &["a"])).await;
    assert_eq!(t.code(create("web", &["b"])).await, "team_exists");
}

#[tokio::test]
async fn concurrent_creates_stay_within_team_budget() {
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
async fn nested_teams_are_destroyed_with_their_parent() {
    let mut t = teams().await;
    t.done(create("top", &["a"])).await;
    t.done(below("top", create("mid", &["a"]))).await;
    t.done(below("mid", create("low", &["a"]))).await;
    t.done(below("low", create("deep", &["a"]))).await;
    assert_eq!(t.code(below("deep", create("deeper", &["a"]))).await, "team_too_deep");
    let low = t.done(json!({"action": "status", "name": "low"})).await;
    assert_eq!((&low["nesting_depth"], &low["parent_team"]), (&json!(2), &json!("mid")));
    // The same role name in two teams means two members.
    t.send("top", "a", "*", "to nobody").await;
    assert_eq!(t.receive("mid", "a").await["count"], 0);
    t.done(json!({"action": "destroy", "name": "mid"})).await;
    let left = t.done(json!({"action": "list"})).await;
    assert_eq!((&left["count"], &left["teams"][0]["name"]), (&json!(1), &json!("top")));
    assert_eq!(t.workspaces().await.len(), 1);
    t.done(json!({"action": "destroy", "name": "top"})).await;
    assert_eq!(t.world.vms.disks.count(), 0);
}
