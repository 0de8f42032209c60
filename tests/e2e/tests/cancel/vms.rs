//! Operations on whole workspaces, their snapshots, and several workspaces at once.

use agentiso_testkit::eventually;
use serde_json::{Value, json};

use crate::deeds::{Operation, operation};
use crate::stage::{BASE, MADE, OTHER, PATIENCE, Stage};

pub(crate) fn queries() -> Vec<Operation> {
    let base = json!({"workspace_id": BASE});
    vec![
        operation("workspace_list", "workspace_list", json!({})),
        operation("workspace_info", "workspace_info", base.clone()),
        operation("workspace_logs", "workspace_logs", base.clone()),
        operation("workspace_adopt", "workspace_adopt", base),
        operation("snapshot list", "snapshot", json!({"action": "list", "workspace_id": BASE})),
        operation("snapshot diff", "snapshot", json!({"action": "diff", "workspace_id": BASE, "name": "d"})),
    ]
}

/// The workspace is running or stopped. It is started if it is stopped.
fn ensure_running(stage: &Stage, _answered: bool) {
    stage.in_turn(OTHER);
    let state = stage.ws(OTHER).state();
    assert!(state == "running" || state == "stopped", "{state}");
    if state == "stopped" {
        stage.client.tool("workspace_start", json!({"workspace_id": OTHER}));
    }
}

fn fork(stage: &Stage) {
    let fork = json!({"workspace_id": BASE, "snapshot_name": "m", "new_name": MADE});
    stage.client.tool("workspace_fork", fork);
}

fn made_workspace_works_or_is_gone(stage: &Stage, answered: bool) {
    stage.made(MADE, answered);
}

pub(crate) fn life_cycle() -> Vec<Operation> {
    vec![
        operation("workspace_create", "workspace_create", json!({"name": MADE}))
            .slow(1500)
            .after(made_workspace_works_or_is_gone),
        operation("workspace_destroy", "workspace_destroy", json!({"workspace_id": MADE}))
            .slow(150)
            .before(fork)
            .after(|stage, answered| {
                // A destroy that has begun is completed; before that nothing is removed.
                if stage.is_listed(MADE) {
                    assert!(!answered);
                    stage.client.try_tool("workspace_destroy", json!({"workspace_id": MADE}));
                }
            }),
        operation("workspace_stop", "workspace_stop", json!({"workspace_id": OTHER}))
            .slow(800)
            .after(ensure_running),
        operation("workspace_start", "workspace_start", json!({"workspace_id": OTHER}))
            .slow(1500)
            .before(|stage| stage.ws(OTHER).stop())
            .after(ensure_running),
        operation(
            "workspace_fork",
            "workspace_fork",
            json!({"workspace_id": BASE, "snapshot_name": "m", "new_name": MADE}),
        )
        .slow(800)
        .after(made_workspace_works_or_is_gone),
        operation(
            "workspace_fork, several",
            "workspace_fork",
            json!({"workspace_id": BASE, "snapshot_name": "m", "count": 2, "name_prefix": MADE}),
        )
        .slow(1200)
        .after(|stage, answered| {
            for number in 1..=2 {
                stage.made(&format!("{MADE}-{number}"), answered);
            }
        }),
    ]
}

/// Checks for and deletes a snapshot that a call may have taken.
fn check_and_delete_snapshot(stage: &Stage, answered: bool, kept: bool) {
    stage.in_turn(BASE);
    let base = stage.ws(BASE);
    let is_there = base.snapshot_names().contains(&"new".to_owned());
    assert!(is_there == kept || !answered, "there: {is_there}");
    if is_there {
        base.delete_snapshot("new");
    }
}

fn create(memory: bool) -> Value {
    json!({"action": "create", "workspace_id": BASE, "name": "new", "include_memory": memory})
}

pub(crate) fn snapshots() -> Vec<Operation> {
    let restore = |name: &str| json!({"action": "restore", "workspace_id": BASE, "name": name});
    vec![
        operation("snapshot create", "snapshot", create(false))
            .slow(200)
            .after(|stage, answered| check_and_delete_snapshot(stage, answered, true)),
        operation("snapshot create with memory", "snapshot", create(true)).slow(1500).after(
            |stage, answered| {
                check_and_delete_snapshot(stage, answered, true);
            },
        ),
        operation(
            "snapshot delete",
            "snapshot",
            json!({"action": "delete", "workspace_id": BASE, "name": "new"}),
        )
        .slow(200)
        .before(|stage| drop(stage.ws(BASE).snapshot("new")))
        .after(|stage, answered| check_and_delete_snapshot(stage, answered, false)),
        operation("snapshot restore", "snapshot", restore("d"))
            .slow(1500)
            .before(|stage| drop(stage.sh(BASE, "echo three > /root/file; sync")))
            .after(|stage, answered| {
                stage.in_turn(BASE);
                let says = stage.sh(BASE, "cat /root/file");
                assert!(says == "two" || says == "three" && !answered, "{says}");
            }),
        operation("snapshot restore with memory", "snapshot", restore("m"))
            .slow(1000)
            .before(|stage| drop(stage.sh(BASE, "echo three > /root/file; sync")))
            .after(|stage, answered| {
                stage.in_turn(BASE);
                let says = stage.sh(BASE, "cat /root/file");
                assert!(says == "one" || says == "three" && !answered, "{says}");
            }),
    ]
}

fn teams(stage: &Stage) -> Vec<Value> {
    let list = stage.client.tool("team", json!({"action": "list"})).json();
    list["teams"].as_array().expect("a list").clone()
}

fn team() -> Value {
    let member = |name: &str| json!({"name": name, "role": "worker"});
    json!({"action": "create", "name": "crew", "roles": [member("ann"), member("bob")],
        "golden_workspace": BASE, "base_snapshot": "m"})
}

fn destroy_team(stage: &Stage) {
    stage.client.tool("team", json!({"action": "destroy", "name": "crew"}));
}

pub(crate) fn groups() -> Vec<Operation> {
    let task = |name: &str| json!({"name": name, "command": "sleep 0.2"});
    vec![
        // Everything that a cancelled swarm made is removed. `all_is_well` would find leftovers.
        operation(
            "swarm_run",
            "swarm_run",
            json!({"golden_workspace": BASE, "snapshot_name": "m", "tasks": [task("a"), task("b")]}),
        )
        .slow(2000),
        operation(
            "workspace_prepare",
            "workspace_prepare",
            json!({"name": MADE, "setup_commands": ["sleep 0.2"]}),
        )
        .slow(2000)
        .after(made_workspace_works_or_is_gone),
        operation("team create", "team", team()).slow(1500).after(|stage, answered| {
            // A team that was ready when the call was cancelled stays; any other is removed by the daemon.
            eventually("it is ready or gone", PATIENCE, || {
                teams(stage).iter().all(|team| team["state"] == "Ready")
            });
            match teams(stage).is_empty() {
                true => assert!(!answered),
                false => {
                    if !answered {
                        stage.count_late_cancel();
                    }
                    destroy_team(stage);
                }
            }
        }),
        operation(
            "team message",
            "team",
            json!({"action": "message", "name": "crew", "agent": "ann", "to": "bob", "content": "hi"}),
        )
        .before(|stage| drop(stage.client.tool("team", team())))
        .after(|stage, answered| {
            let receive = json!({"action": "receive", "name": "crew", "agent": "bob"});
            let count = stage.client.tool("team", receive).json()["count"].as_u64().expect("a number");
            assert!(count == 1 || count == 0 && !answered, "{count}");
            destroy_team(stage);
        })
        .slow(20),
        operation("team destroy", "team", json!({"action": "destroy", "name": "crew"}))
            .slow(200)
            .before(|stage| drop(stage.client.tool("team", team())))
            .after(|stage, _| {
                let gone = stage.client.try_tool("team", json!({"action": "destroy", "name": "crew"}));
                assert!(
                    !gone.is_error || teams(stage).iter().all(|team| team["state"] != "Ready"),
                    "{}",
                    gone.text
                );
            }),
    ]
}
