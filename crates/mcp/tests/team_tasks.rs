//! Tasks that are assigned to team members: how they run, their results, and what happens when a VM or the daemon ends.

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Client, World};

struct Team {
    world: World,
    client: Client,
}

/// A team `web` of ann and bob.
async fn team() -> Team {
    let world = support::world().await;
    let client = Client::initialized(world.session(), "full", false).await;
    let mut team = Team { world, client };
    let roles = json!([{"name": "ann", "role": "lead"}, {"name": "bob", "role": "worker"}]);
    team.done(json!({"action": "create", "name": "web", "roles": roles})).await;
    team
}

impl Team {
    async fn done(&mut self, arguments: Value) -> Value {
        let answer = self.client.call("team", arguments.clone()).await;
        assert_ne!(answer["isError"], true, "{arguments}: {answer}");
        answer["structuredContent"].clone()
    }

    async fn assign(&mut self, to: &str, content: &str) -> Value {
        self.done(json!({"action": "message", "name": "web", "agent": "ann", "to": to, "content": content,
            "message_type": "task_assignment"}))
            .await
    }

    async fn assign_command(&mut self, to: &str, command: &str) -> Value {
        self.assign(to, &json!({"task_id": command, "command": command}).to_string()).await
    }

    async fn receive(&mut self, agent: &str) -> Value {
        self.done(json!({"action": "receive", "name": "web", "agent": agent})).await
    }

    /// Waits for the next results of a member.
    async fn results(&mut self, agent: &str) -> Vec<Value> {
        let some = async {
            loop {
                let received = self.receive(agent).await;
                assert_eq!(received["count"], 0, "a task is no mail: {received}");
                if let Some(results) = received["daemon_results"].as_array() {
                    return results.clone();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), some).await.expect("a result")
    }

    async fn status(&mut self) -> (String, String) {
        let status = self.done(json!({"action": "status", "name": "web"})).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&status["state"]), text(&status["members"][1]["agent_status"]))
    }

    /// Waits until the card of bob shows this status.
    async fn card_says(&self, status: &str) {
        let path = self.world.vault().join("teams/web/cards/bob.json");
        let said = async {
            loop {
                let card: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
                if card["status"] == status {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), said).await.expect("a card that is up to date");
    }
}

#[tokio::test]
async fn assigned_task_result_is_received_once() {
    let mut t = team().await;
    let sent = t.assign_command("bob", "echo hi").await;
    assert_eq!(sent["status"], "delivered");
    let results = t.results("bob").await;
    assert_eq!(
        results,
        [json!({
            "task_id": "echo hi", "success": true, "exit_code": 0, "stdout": "hi\n", "stderr": "",
            "elapsed_secs": 0, "source_message_id": sent["message_id"],
        })]
    );
    let after = t.receive("bob").await;
    assert!(after.get("daemon_results").is_none() && after.get("daemon_pending_tasks").is_none(), "{after}");
    t.card_says("done").await;
    assert_eq!(t.status().await, ("Ready".to_owned(), "Done".to_owned()));

    t.assign_command("bob", "exit 3").await;
    let failed = t.results("bob").await.remove(0);
    assert_eq!((&failed["exit_code"], &failed["success"]), (&json!(3), &json!(false)));
    t.card_says("failed").await;
    assert_eq!(t.status().await, ("Ready".to_owned(), "Failed".to_owned()));
}

#[tokio::test]
async fn assigned_task_gets_workdir_and_environment() {
    let mut t = team().await;
    t.assign_command("bob", "pwd").await;
    assert_eq!(t.results("bob").await[0]["stdout"], "/workspace");
    t.assign("bob", r#"{"task_id": "t", "command": "pwd", "workdir": "/srv"}"#).await;
    assert_eq!(t.results("bob").await[0]["stdout"], "/srv");
    t.assign("bob", r#"{"task_id": "t", "command": "env CI", "env": {"CI": "yes"}}"#).await;
    assert_eq!(t.results("bob").await[0]["stdout"], "yes");
    t.assign_command("bob", "bytes 100000").await;
    let long = t.results("bob").await[0]["stdout"].as_str().unwrap().to_owned();
    assert!(long.len() <= 4096 && long.contains("[...]"), "{}", long.len());
}

#[tokio::test]
async fn malformed_assignment_yields_a_failed_result() {
    let mut t = team().await;
    for content in
        ["make it so", r#"{"task_id": "t"}"#, r#"{"task_id": "t", "command": "x", "env": {"PATH": "/"}}"#]
    {
        let sent = t.assign("bob", content).await;
        let result = t.results("bob").await.remove(0);
        assert_eq!(
            (&result["task_id"], &result["exit_code"], &result["success"], &result["source_message_id"]),
            (&json!("unknown"), &json!(-2), &json!(false), &sent["message_id"])
        );
        assert!(!result["stderr"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn four_tasks_run_at_once_within_their_timeout() {
    let mut t = team().await;
    for number in 0..4 {
        t.assign(
            "bob",
            &json!({"task_id": number.to_string(), "command": "wait", "timeout_secs": 2}).to_string(),
        )
        .await;
    }
    t.assign_command("bob", "echo last").await;
    t.world.vms.waiting_commands(4).await;
    assert_eq!(t.receive("bob").await["daemon_pending_tasks"], 5);
    assert_eq!(t.status().await, ("Working".to_owned(), "Working".to_owned()));
    t.card_says("working").await;
    let mut results = Vec::new();
    while results.len() < 5 {
        results.extend(t.results("bob").await);
    }
    for late in results.iter().filter(|result| result["task_id"] != "echo last") {
        assert_eq!((&late["exit_code"], &late["stdout"]), (&json!(-1), &json!("so far")));
        assert!(late["stderr"].as_str().unwrap().contains("timed out"), "{late}");
    }
    let last = results.iter().find(|result| result["task_id"] == "echo last").unwrap();
    assert_eq!(last["success"], true);
    assert_eq!(t.status().await.0, "Ready");
}

#[tokio::test]
async fn broadcast_task_skips_the_sender() {
    let mut t = team().await;
    t.assign_command("*", "echo all").await;
    assert_eq!(t.results("bob").await[0]["stdout"], "all\n");
    assert!(t.receive("ann").await.get("daemon_results").is_none());
}

#[tokio::test]
async fn task_of_a_stopped_vm_fails() {
    let mut t = team().await;
    t.assign_command("bob", "wait").await;
    t.world.vms.waiting_commands(1).await;
    t.client.call("workspace_stop", json!({"workspace_id": "web.bob"})).await;
    let cut = t.results("bob").await.remove(0);
    assert_eq!((&cut["exit_code"], &cut["success"]), (&json!(-1), &json!(false)));
    assert!(cut["stderr"].as_str().unwrap().contains("interrupted"), "{cut}");
    t.assign_command("bob", "echo x").await;
    let stopped = t.results("bob").await.remove(0);
    assert!(stopped["stderr"].as_str().unwrap().contains("not running"), "{stopped}");
    t.client.call("workspace_destroy", json!({"workspace_id": "web.bob"})).await;
    t.assign_command("bob", "echo x").await;
    assert_eq!(t.results("bob").await[0]["exit_code"], -1);
}

#[tokio::test]
async fn task_results_survive_a_daemon_restart() {
    let mut t = team().await;
    t.assign_command("bob", "echo kept").await;
    t.card_says("done").await;
    t.assign_command("bob", "wait").await;
    t.world.vms.waiting_commands(1).await;
    let Team { world, client } = t;
    client.close().await;
    // VMs end with a daemon that is shut down, and their jobs with them.
    let world = world.restarted().await;
    let client = Client::initialized(world.session(), "full", false).await;
    let mut t = Team { world, client };
    let mut results = Vec::new();
    while results.len() < 2 {
        results.extend(t.results("bob").await);
    }
    assert_eq!(results[0]["stdout"], "kept\n");
    assert_eq!((&results[1]["task_id"], &results[1]["exit_code"]), (&json!("wait"), &json!(-1)));
    assert!(t.receive("bob").await.get("daemon_pending_tasks").is_none());
    t.client.call("workspace_adopt", json!({})).await;
    t.client.call("workspace_start", json!({"workspace_id": "web.bob"})).await;
    t.assign_command("bob", "echo again").await;
    assert_eq!(t.results("bob").await[0]["stdout"], "again\n");
}

#[tokio::test]
async fn team_with_running_tasks_can_be_destroyed() {
    let mut t = team().await;
    for _ in 0..6 {
        t.assign_command("bob", "wait").await;
    }
    t.world.vms.waiting_commands(4).await;
    t.done(json!({"action": "destroy", "name": "web"})).await;
    assert_eq!(t.world.vms.disks.count(), 0);
    assert_eq!(t.done(json!({"action": "list"})).await["count"], 0);
}
