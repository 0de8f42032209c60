//! Operations on snapshots: create, restore, fork, delete, and swarms.

use std::time::Instant;

use agentiso_testkit::ToolResult;
use serde_json::{Value, json};

use super::Player;
use super::call::{About, Answer};
use super::inside::DIR;
use super::verify::{SETTLED_AFTER, SNAPSHOTS_SETTLED_AFTER, parse};
use crate::model::{Contents, Snapshot};
use crate::rng::pick;

/// The most snapshots of a workspace; more would fill its small disk.
const SNAPSHOTS: usize = 4;

const TASKS: [&str; 2] = ["x", "y"];

impl Player<'_> {
    pub(super) fn has_snapshot(&self) -> bool {
        !self.sure_snapshots().is_empty()
    }

    /// The workspace and name of every snapshot that certainly exists.
    pub(super) fn sure_snapshots(&self) -> Vec<(String, String)> {
        let of = |(name, ws): (&String, &crate::model::Workspace)| {
            let sure = ws.snapshots.iter().filter(|(_, snapshot)| snapshot.is_sure);
            sure.map(|(snapshot, _)| (name.clone(), snapshot.clone())).collect::<Vec<_>>()
        };
        self.workspaces.iter().flat_map(of).collect()
    }

    fn one_snapshot(&self, choice: u64) -> Option<(String, String, Snapshot)> {
        let (name, snapshot) = pick(&self.sure_snapshots(), choice)?.clone();
        let kept = self.workspaces.get(&name)?.snapshots.get(&snapshot)?.clone();
        Some((name, snapshot, kept))
    }

    pub(super) fn snapshot(&mut self, choice: u64, with_memory: bool) {
        let Some(name) = self.one_running(choice) else { return };
        if self.workspaces[&name].snapshots.len() >= SNAPSHOTS {
            return self.delete_snapshot(choice);
        }
        // Only certain contents can be compared with the snapshot later.
        if !self.check_one(&name) {
            return;
        }
        let snapshot = self.fresh("s");
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        let Some(mut contents) = workspace.contents.first().cloned() else { return };
        if !with_memory {
            contents.lose_memory();
        }
        let entry = Snapshot { contents, has_memory: with_memory, is_sure: false };
        workspace.snapshots.insert(snapshot.clone(), entry);
        let short = workspace.short().to_owned();
        let about = About { vm: Some(&short), ..About::default() };
        let arguments = json!({
            "workspace_id": name, "action": "create", "name": snapshot, "include_memory": with_memory,
        });
        let answer = self.call("snapshot", &arguments, &about);
        if let Some(workspace) = self.workspaces.get_mut(&name)
            && let Some(entry) = workspace.snapshots.get_mut(&snapshot)
        {
            entry.is_sure = answer.is_done();
        }
        if !answer.is_done() {
            self.wait_until_settled(&name, SNAPSHOTS_SETTLED_AFTER);
        }
    }

    pub(super) fn restore(&mut self, choice: u64) {
        let Some((name, snapshot, kept)) = self.one_snapshot(choice) else { return };
        if !self.ensure_running(&name) {
            return;
        }
        let short = self.workspaces[&name].short().to_owned();
        let since = Instant::now();
        let about = About { vm: Some(&short), starts_vm: true, ..About::default() };
        let arguments = json!({"workspace_id": name, "action": "restore", "name": snapshot});
        let answer = self.call("snapshot", &arguments, &about);
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        match answer {
            Answer::Done(result) => {
                workspace.contents = vec![kept.contents.clone()];
                if kept.has_memory && result.structured["processes_restored"] != true {
                    workspace.lose_memory();
                    if !self.site.weather.could_affect(&short, false, since) {
                        self.without_memory(&format!("restore of {name} to {snapshot}"), &result, since);
                    }
                }
            }
            Answer::Refused { .. } | Answer::Cut => {
                workspace.contents.push(kept.contents);
                workspace.may_lose_memory();
                workspace.may_be_stopped = true;
                self.wait_until_settled(&name, SETTLED_AFTER);
            }
        }
        self.check_one(&name);
    }

    /// Records that a memory snapshot was restored without its memory and no fault explains it.
    fn without_memory(&self, what: &str, result: &ToolResult, since: Instant) {
        self.unexpected(&format!("{what} brought no processes back: {}", result.text), since);
    }

    pub(super) fn fork(&mut self, choice: u64) {
        let Some((name, snapshot, kept)) = self.one_snapshot(choice) else { return };
        let new_name = self.fresh("w");
        self.fork_as(&name, &snapshot, &kept, &new_name);
        self.check_one(&new_name);
    }

    /// Forks a snapshot and adds the fork to the model if it was made.
    pub(super) fn fork_as(&mut self, name: &str, snapshot: &str, kept: &Snapshot, new_name: &str) {
        let Some(source) = self.workspaces.get(name) else { return };
        let short = source.short().to_owned();
        let policies = source.policies.clone();
        let since = Instant::now();
        let about = About { vm: Some(&short), makes_vms: true, ..About::default() };
        let arguments = json!({"workspace_id": name, "snapshot_name": snapshot, "new_name": new_name});
        match self.call("workspace_fork", &arguments, &about).done() {
            Some(result) => {
                let mut contents = kept.contents.clone();
                if result.structured["note"].as_str().is_some_and(|note| note.contains("Warning")) {
                    contents.lose_memory();
                    if !self.site.weather.could_affect(&short, true, since) {
                        self.without_memory(&format!("fork of {snapshot} of {name}"), &result, since);
                    }
                }
                self.enter(new_name, &result.structured, contents, policies);
            }
            None => self.discard(new_name),
        }
    }

    pub(super) fn delete_snapshot(&mut self, choice: u64) {
        let Some((name, snapshot, _)) = self.one_snapshot(choice) else { return };
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        if let Some(entry) = workspace.snapshots.get_mut(&snapshot) {
            entry.is_sure = false;
        }
        let short = workspace.short().to_owned();
        // A snapshot cannot be deleted while it has forks.
        let about = About { vm: Some(&short), fine: &["snapshot_in_use"], ..About::default() };
        let arguments = json!({"workspace_id": name, "action": "delete", "name": snapshot});
        let answer = self.call("snapshot", &arguments, &about);
        if let Some(workspace) = self.workspaces.get_mut(&name) {
            match answer {
                Answer::Done(_) => drop(workspace.snapshots.remove(&snapshot)),
                Answer::Refused { code } if code == "snapshot_in_use" => {
                    if let Some(entry) = workspace.snapshots.get_mut(&snapshot) {
                        entry.is_sure = true;
                    }
                }
                Answer::Refused { .. } | Answer::Cut => {
                    self.wait_until_settled(&name, SNAPSHOTS_SETTLED_AFTER)
                }
            }
        }
    }

    /// Runs a swarm of two workers that report their contents. None of them may be left.
    pub(super) fn swarm(&mut self, choice: u64) {
        let Some((name, snapshot, kept)) = self.one_snapshot(choice) else { return };
        let short = self.workspaces[&name].short().to_owned();
        let command = format!(
            "mkdir -p {DIR}; cd {DIR} && for f in *; do [ -e \"$f\" ] && sha256sum \"$f\"; done; true"
        );
        let tasks: Vec<Value> = TASKS.iter().map(|task| json!({"name": task, "command": command})).collect();
        let since = Instant::now();
        let about = About { vm: Some(&short), makes_vms: true, ..About::default() };
        let arguments = json!({"golden_workspace": name, "snapshot_name": snapshot, "tasks": tasks});
        let Some(result) = self.call("swarm_run", &arguments, &about).done() else { return };
        let answer = result.json();
        for task in TASKS.iter().enumerate().map(|(at, _)| &answer["tasks"][at]) {
            self.judge_task((&name, &short), &snapshot, &kept.contents, task, since);
        }
    }

    fn judge_task(
        &self,
        (name, short): (&str, &str),
        snapshot: &str,
        contents: &Contents,
        task: &Value,
        since: Instant,
    ) {
        if task["success"] != true {
            // The answer has no error code, so any fault that can stop a worker counts as the reason.
            if !self.site.weather.could_affect(short, true, since) {
                self.unexpected(&format!("a worker of {snapshot} of {name} failed: {task}"), since);
            }
            return;
        }
        let mut files = contents.clone();
        files.lose_memory();
        let seen = parse(task["stdout"].as_str().unwrap_or_default());
        let differences = files.differences(&seen);
        if differences.is_empty() {
            self.site.journal.count_check();
        } else {
            self.lost(&format!("worker of {snapshot} of {name}: {}", differences.join("; ")));
        }
    }
}
