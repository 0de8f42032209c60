//! Everything that can be asked for, and what must be true after it was asked for and taken back.

use std::collections::BTreeSet;
use std::time::Duration;

use agentiso_testkit::eventually;
use serde_json::{Value, json};

use crate::stage::{BASE, LONG_SLEEP, OTHER, PATIENCE, Stage};
use crate::{files, machines};

pub(crate) struct Deed {
    pub(crate) what: &'static str,
    pub(crate) tool: &'static str,
    arguments: Value,
    /// How often it is cancelled.
    pub(crate) rounds: u32,
    /// About how long it takes, of what is slow enough to hang up in the middle.
    pub(crate) usually: Option<Duration>,
    /// Whether it is done with the job that runs.
    on_job: bool,
    /// Makes it possible.
    pub(crate) before: fn(&Stage),
    /// Looks at what became of it, and takes it back. Says whether the call was answered.
    pub(crate) after: fn(&Stage, bool),
}

/// For what is quick and needs nothing.
pub(crate) fn deed(what: &'static str, tool: &'static str, arguments: Value) -> Deed {
    Deed { what, tool, arguments, rounds: 2, usually: None, on_job: false, before: |_| (), after: |_, _| () }
}

impl Deed {
    /// For what takes about so many milliseconds.
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

/// What is done in machines, and with notes.
pub(crate) fn small() -> Vec<Deed> {
    let mut all = commands();
    all.extend(network());
    all.extend(files::deeds());
    all.extend(files::repositories());
    all.extend(files::notes());
    all.extend(machines::looks());
    all
}

/// What is done with whole machines.
pub(crate) fn large() -> Vec<Deed> {
    let mut all = machines::lives();
    all.extend(machines::snapshots());
    all.extend(machines::many());
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

/// Tells every job that runs to end, and says which they were.
pub(crate) fn kill_jobs(stage: &Stage) -> BTreeSet<String> {
    let kill = |job: Value| {
        let kill = json!({"action": "kill", "workspace_id": BASE, "job_id": job["job_id"]});
        // It may just have ended by itself.
        stage.client.try_tool("exec_background", kill);
        job["job_id"].to_string()
    };
    jobs(stage).into_iter().map(kill).collect()
}

/// Ends what runs, of which there must be so many at most. A start that was cancelled may still be on its way; what comes
/// later is ended while the stage waits for all to be well.
fn end_jobs(stage: &Stage, most: usize) {
    let mut killed = BTreeSet::new();
    eventually("no job is left", PATIENCE, || {
        let running = kill_jobs(stage);
        killed.extend(running.iter().cloned());
        assert!(killed.len() <= most, "{killed:?}");
        running.is_empty()
    });
}

fn commands() -> Vec<Deed> {
    let tree = format!("{LONG_SLEEP} & ({LONG_SLEEP} & sleep 0.2); kill 0");
    vec![
        deed("exec", "exec", json!({"workspace_id": BASE, "command": "sleep 0.3; echo done"})),
        deed("exec, a tree of processes", "exec", json!({"workspace_id": BASE, "command": tree})),
        deed(
            "exec_parallel",
            "exec_parallel",
            json!({"workspace_ids": [BASE, OTHER], "commands": "sleep 0.3"}),
        ),
        deed(
            "exec_background start",
            "exec_background",
            json!({"action": "start", "workspace_id": BASE, "command": LONG_SLEEP}),
        )
        .after(|stage, answered| {
            let begun = jobs(stage).len();
            assert!(!answered || begun == 1, "{begun} jobs");
            end_jobs(stage, 1);
        }),
        deed(
            "exec_background poll",
            "exec_background",
            json!({"action": "poll", "workspace_id": BASE, "wait_secs": 1}),
        )
        .on_job()
        .after(|stage, _| {
            assert_eq!(jobs(stage).len(), 1, "it runs on, whoever looks at it");
            end_jobs(stage, 1);
        }),
        deed("exec_background kill", "exec_background", json!({"action": "kill", "workspace_id": BASE}))
            .on_job()
            .after(|stage, answered| {
                assert!(jobs(stage).is_empty() || !answered);
                end_jobs(stage, 1);
            }),
        deed(
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

fn network() -> Vec<Deed> {
    vec![
        deed("network_policy", "network_policy", json!({"workspace_id": BASE, "allow_inter_vm": true}))
            .before(forbid)
            .after(|stage, answered| {
                let allowed = &stage.network(BASE)["allow_inter_vm"];
                assert!(allowed == true || !answered, "{allowed}");
            }),
        deed(
            "port_forward add",
            "port_forward",
            json!({"action": "add", "workspace_id": BASE, "guest_port": 7000}),
        )
        .after(|stage, answered| {
            let forwards = forwards(stage);
            assert!(forwards == 1 || forwards == 0 && !answered, "{forwards}");
            remove_forward(stage);
        }),
        deed(
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
