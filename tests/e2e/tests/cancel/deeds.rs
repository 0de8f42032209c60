//! The list of operations that are cancelled, each with a check of the state afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use agentiso_testkit::eventually;
use serde_json::{Value, json};

use crate::stage::{BASE, LONG_SLEEP, OTHER, PATIENCE, Stage};
use crate::{files, vms};

pub(crate) struct Operation {
    pub(crate) what: &'static str,
    pub(crate) tool: &'static str,
    arguments: Value,
    /// The number of times that the operation is cancelled.
    pub(crate) rounds: u32,
    /// The usual duration, for operations slow enough to disconnect in the middle.
    pub(crate) usually: Option<Duration>,
    /// Whether the operation is about the running job.
    on_job: bool,
    /// Prepares the state that the operation needs.
    pub(crate) before: fn(&Stage),
    /// Checks the result and undoes it. The flag says whether the call was answered.
    pub(crate) after: fn(&Stage, bool),
}

/// A quick operation that needs no preparation.
pub(crate) fn operation(what: &'static str, tool: &'static str, arguments: Value) -> Operation {
    Operation {
        what,
        tool,
        arguments,
        rounds: 2,
        usually: None,
        on_job: false,
        before: |_| (),
        after: |_, _| (),
    }
}

impl Operation {
    /// Marks an operation that takes about this many milliseconds.
    pub(crate) fn slow(self, millis: u64) -> Self {
        Self { usually: Some(Duration::from_millis(millis)), rounds: 2, ..self }
    }

    fn on_job(self) -> Self {
        Self { on_job: true, before: start_job, ..self }
    }

    pub(crate) fn arguments(&self, stage: &Stage) -> Value {
        let mut arguments = self.arguments.clone();
        if self.on_job {
            arguments["job_id"] = jobs(stage)[0]["job_id"].clone();
        }
        arguments
    }

    pub(crate) fn before(self, before: fn(&Stage)) -> Self {
        Self { before, ..self }
    }

    pub(crate) fn after(self, after: fn(&Stage, bool)) -> Self {
        Self { after, ..self }
    }
}

/// Operations inside a guest, on the network, and with notes.
pub(crate) fn small() -> Vec<Operation> {
    let mut all = commands();
    all.extend(network());
    all.extend(files::deeds());
    all.extend(files::repositories());
    all.extend(files::notes());
    all.extend(vms::queries());
    all
}

/// Operations on whole workspaces.
pub(crate) fn large() -> Vec<Operation> {
    let mut all = vms::life_cycle();
    all.extend(vms::snapshots());
    all.extend(vms::groups());
    all
}

fn jobs(stage: &Stage) -> Vec<Value> {
    let list = stage.client.tool("exec_background", json!({"action": "list", "workspace_id": BASE})).json();
    let ours = |job: &&Value| job["command"] == LONG_SLEEP && job["running"] == true;
    list.as_array().expect("a list").iter().filter(ours).cloned().collect()
}

fn start_job(stage: &Stage) {
    let start = json!({"action": "start", "workspace_id": BASE, "command": LONG_SLEEP});
    stage.client.tool("exec_background", start);
}

/// Kills every running job and returns their ids.
pub(crate) fn kill_jobs(stage: &Stage) -> BTreeSet<String> {
    let kill = |job: Value| {
        let kill = json!({"action": "kill", "workspace_id": BASE, "job_id": job["job_id"]});
        // The job may just have ended by itself.
        stage.client.try_tool("exec_background", kill);
        job["job_id"].to_string()
    };
    jobs(stage).into_iter().map(kill).collect()
}

/// Kills all running jobs, of which there must be at most `most`. A cancelled start may still be on its way; a job that
/// it starts later is killed by `Stage::all_is_well`.
fn end_jobs(stage: &Stage, most: usize) {
    let mut killed = BTreeSet::new();
    eventually("no job is left", PATIENCE, || {
        let running = kill_jobs(stage);
        killed.extend(running.iter().cloned());
        assert!(killed.len() <= most, "{killed:?}");
        running.is_empty()
    });
}

fn commands() -> Vec<Operation> {
    let tree = format!("{LONG_SLEEP} & ({LONG_SLEEP} & sleep 0.2); kill 0");
    vec![
        operation("exec", "exec", json!({"workspace_id": BASE, "command": "sleep 0.3; echo done"})),
        operation("exec, a tree of processes", "exec", json!({"workspace_id": BASE, "command": tree})),
        operation(
            "exec_parallel",
            "exec_parallel",
            json!({"workspace_ids": [BASE, OTHER], "commands": "sleep 0.3"}),
        ),
        operation(
            "exec_background start",
            "exec_background",
            json!({"action": "start", "workspace_id": BASE, "command": LONG_SLEEP}),
        )
        .after(|stage, answered| {
            let begun = jobs(stage).len();
            assert!(!answered || begun == 1, "{begun} jobs");
            end_jobs(stage, 1);
        }),
        operation(
            "exec_background poll",
            "exec_background",
            json!({"action": "poll", "workspace_id": BASE, "wait_secs": 1}),
        )
        .on_job()
        .after(|stage, _| {
            assert_eq!(jobs(stage).len(), 1, "it runs on, no matter who looks");
            end_jobs(stage, 1);
        }),
        operation("exec_background kill", "exec_background", json!({"action": "kill", "workspace_id": BASE}))
            .on_job()
            .after(|stage, answered| {
                assert!(jobs(stage).is_empty() || !answered);
                end_jobs(stage, 1);
            }),
        operation(
            "set_env",
            "set_env",
            json!({"workspace_id": BASE, "vars": {"MARK": "new", "OTHER_MARK": "new"}}),
        )
        .before(|stage| {
            let old = json!({"workspace_id": BASE, "vars": {"MARK": "old", "OTHER_MARK": "old"}});
            stage.client.tool("set_env", old);
        })
        .after(|stage, answered| {
            let now = stage.sh(BASE, "echo $MARK $OTHER_MARK");
            assert!(now == "new new" || now == "old old" && !answered, "{now}");
        }),
    ]
}

fn forbid(stage: &Stage) {
    let change = json!({"workspace_id": BASE, "allow_inter_vm": false});
    stage.client.tool("network_policy", change);
}

fn forwards(stage: &Stage) -> usize {
    stage.network(BASE)["port_forwards"].as_array().expect("a list").len()
}

fn remove_forward(stage: &Stage) {
    if forwards(stage) > 0 {
        let remove = json!({"action": "remove", "workspace_id": BASE, "guest_port": 7000});
        stage.client.tool("port_forward", remove);
    }
}

fn network() -> Vec<Operation> {
    vec![
        operation("network_policy", "network_policy", json!({"workspace_id": BASE, "allow_inter_vm": true}))
            .before(forbid)
            .after(|stage, answered| {
                let allowed = &stage.network(BASE)["allow_inter_vm"];
                assert!(allowed == true || !answered, "{allowed}");
            }),
        operation(
            "port_forward add",
            "port_forward",
            json!({"action": "add", "workspace_id": BASE, "guest_port": 7000}),
        )
        .after(|stage, answered| {
            let forwards = forwards(stage);
            assert!(forwards == 1 || forwards == 0 && !answered, "{forwards}");
            remove_forward(stage);
        }),
        operation(
            "port_forward remove",
            "port_forward",
            json!({"action": "remove", "workspace_id": BASE, "guest_port": 7000}),
        )
        .before(|stage| {
            let add = json!({"action": "add", "workspace_id": BASE, "guest_port": 7000});
            stage.client.tool("port_forward", add);
        })
        .after(|stage, answered| {
            assert!(forwards(stage) == 0 || !answered);
            remove_forward(stage);
        }),
    ]
}
