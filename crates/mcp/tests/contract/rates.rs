//! Rate limits: which calls count against which limit, and how often.

use serde_json::{Value, json};

use crate::support::{self, Client};
use crate::{code, text};

async fn limited(client: &mut Client, tool: &str, arguments: Value) {
    let refused = client.call(tool, arguments.clone()).await;
    assert_eq!(code(&refused), "rate_limited", "{tool} {arguments}: {refused}");
    let said = text(&refused).to_lowercase();
    assert!(said.contains("rate limit") && said.contains("1 per minute"), "{refused}");
}

async fn free(client: &mut Client, tool: &str, arguments: Value) {
    let answer = client.call(tool, arguments.clone()).await;
    assert_eq!(code(&answer), "", "{tool} {arguments}: {answer}");
}

#[tokio::test]
async fn create_limit_counts_each_call_but_not_prepare() {
    let world = support::world_with("[rate_limit]\ncreate_per_minute = 1\n").await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    free(&mut client, "workspace_prepare", json!({"name": "gold"})).await;
    let fork = json!({"workspace_id": "gold", "snapshot_name": "golden", "count": 2});
    let tasks = json!([{"name": "a", "command": "echo x"}, {"name": "b", "command": "echo x"}]);
    let swarm = json!({"golden_workspace": "gold", "snapshot_name": "golden", "tasks": tasks});
    let team = json!({"action": "create", "name": "t", "roles": [{"name": "a", "role": "r"}]});
    // Each call counts as one of the twenty, whatever its number of workspaces.
    free(&mut client, "workspace_fork", fork.clone()).await;
    free(&mut client, "swarm_run", swarm.clone()).await;
    free(&mut client, "team", team.clone()).await;
    for _ in 3..20 {
        free(&mut client, "workspace_create", json!({"name": "brief", "memory_mb": 128})).await;
        free(&mut client, "workspace_destroy", json!({"workspace_id": "brief"})).await;
    }
    limited(&mut client, "workspace_create", json!({"name": "late"})).await;
    limited(&mut client, "workspace_fork", fork).await;
    limited(&mut client, "swarm_run", swarm).await;
    limited(&mut client, "team", json!({"action": "create", "name": "u", "roles": team["roles"]})).await;
    free(&mut client, "workspace_prepare", json!({"name": "silver"})).await;
}

#[tokio::test]
async fn rate_limit_defaults_match_the_contract() {
    let world = support::world_with("").await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    let small = |name: &str| json!({"name": name, "memory_mb": 128, "disk_gb": 1});
    free(&mut client, "workspace_create", small("w")).await;
    // Permits return while the calls are made, on a slow host more of them.
    let mut refusals = Vec::new();
    for (tool, arguments, least) in [
        ("exec", json!({"workspace_id": "w", "command": "echo x"}), 100),
        ("workspace_create", small("brief"), 19),
    ] {
        for number in 0..1000 {
            let answer = client.call(tool, arguments.clone()).await;
            if code(&answer) == "rate_limited" {
                assert!(number >= least, "{tool}: {number}");
                refusals.push(text(&answer).to_owned());
                break;
            }
            assert_eq!(code(&answer), "", "{tool}: {answer}");
            client.call("workspace_destroy", json!({"workspace_id": "brief"})).await;
        }
    }
    assert!(refusals[0].contains("60 per minute") && refusals[1].contains("5 per minute"), "{refusals:?}");
}

#[tokio::test]
async fn exec_limit_counts_each_workspace_but_not_polls() {
    let world = support::world_with("[rate_limit]\nexec_per_minute = 1\n").await;
    let mut client = Client::initialized(world.session(), "full", false).await;
    free(&mut client, "workspace_create", json!({"name": "a"})).await;
    let on = |mut arguments: Value| {
        arguments["workspace_id"] = "a".into();
        arguments
    };
    let parallel = |count: usize| json!({"workspace_ids": vec!["a"; count], "commands": "echo x"});
    let start = on(json!({"action": "start", "command": "echo x"}));
    for _ in 0..4 {
        free(&mut client, "exec_parallel", parallel(20)).await;
    }
    free(&mut client, "exec_parallel", parallel(17)).await;
    free(&mut client, "exec_background", start.clone()).await;
    free(&mut client, "exec_background", on(json!({"command": "echo x"}))).await;
    limited(&mut client, "exec_parallel", parallel(2)).await;
    free(&mut client, "exec", on(json!({"command": "echo x"}))).await;
    limited(&mut client, "exec", on(json!({"command": "echo x"}))).await;
    limited(&mut client, "workspace_exec", on(json!({"command": "echo x"}))).await;
    limited(&mut client, "exec_background", start).await;
    limited(&mut client, "exec_parallel", parallel(1)).await;
    for _ in 0..30 {
        free(&mut client, "exec_background", on(json!({"action": "poll", "job_id": 1}))).await;
        free(&mut client, "exec_background", on(json!({"action": "kill", "job_id": 2}))).await;
        free(&mut client, "workspace_info", on(json!({}))).await;
        free(&mut client, "file_write", on(json!({"path": "/f", "content": "x"}))).await;
    }
}
