//! Comparison of a workspace with the model, and restart of VMs that a fault has ended.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Player;
use super::call::About;
use super::inside::DIR;
use crate::model::{Info, Policy, Seen};
use crate::rng::pick;
use crate::site::pause;

/// The time for a VM to start on a busy host, or to resume after the host's disk was full.
const UP_WITHIN: Duration = Duration::from_secs(240);

/// A call without an answer that has not begun after this time never begins.
pub(super) const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The same for snapshots, which are finished while their workspace is already at rest.
pub(super) const SNAPSHOTS_SETTLED_AFTER: Duration = Duration::from_secs(8);

/// The phases in which nothing is being done to a workspace.
const AT_REST: [&str; 3] = ["running", "stopped", "suspended"];

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A VM can be hit during its check. After this many attempts it is left for the next comparison: each failed call was
/// explained by a fault, or is a finding already.
const ATTEMPTS: usize = 4;

impl Player<'_> {
    pub(super) fn check(&mut self, choice: u64) {
        let names: Vec<String> = self.workspaces.keys().cloned().collect();
        if let Some(name) = pick(&names, choice) {
            self.check_one(name);
        }
    }

    /// Checks everything about one workspace, from outside and inside. False if it could not be compared, or differs.
    pub(super) fn check_one(&mut self, name: &str) -> bool {
        let mut differences = Vec::new();
        for _ in 0..ATTEMPTS {
            if !self.ensure_running(name) {
                return false;
            }
            let Some(seen) = self.look_inside(name) else { continue };
            let Some(workspace) = self.workspaces.get_mut(name) else { return false };
            match workspace.judge_contents(&seen) {
                Ok(()) => {
                    self.site.journal.count_check();
                    self.check_forwards(name);
                    return true;
                }
                Err(found) => differences = found,
            }
            // A VM that ended a moment ago is still listed as running.
            let short = self.workspaces[name].short().to_owned();
            if !self.site.weather.is_struck(&short) {
                break;
            }
        }
        if !differences.is_empty() {
            self.lost(&format!("{name}: {}", differences.join("; ")));
            self.accept_what_is_there(name);
        }
        false
    }

    /// After a finding the model adopts the actual state, so that one loss is reported once.
    fn accept_what_is_there(&mut self, name: &str) {
        let Some(seen) = self.look_inside(name) else { return };
        if let Some(workspace) = self.workspaces.get_mut(name) {
            let mut contents = crate::model::Contents::default();
            for (file, digest) in &seen.files {
                contents.write_ends(file, digest);
            }
            contents.learn(&seen);
            workspace.contents = vec![contents];
        }
    }

    /// Waits until a call without an answer is finished or undone in this workspace, and the workspace has been at rest
    /// for some time. Until then it can still change, so nothing can be concluded from its state.
    pub(super) fn wait_until_settled(&mut self, name: &str, rest: Duration) {
        let begun = Instant::now();
        let mut settled_since: Option<Instant> = None;
        while begun.elapsed() < UP_WITHIN {
            let _connected = self.connection();
            if self.is_at_rest(name) {
                if settled_since.get_or_insert_with(Instant::now).elapsed() > rest {
                    return;
                }
            } else {
                settled_since = None;
            }
            pause(LOOK_EVERY);
        }
        self.unexpected(&format!("{name} did not come to rest within {UP_WITHIN:?}"), begun);
    }

    /// Whether the daemon does nothing with the workspace. A workspace that is gone is at rest.
    fn is_at_rest(&self, name: &str) -> bool {
        let output = self.site.host.cli(&["ps", "--json"]);
        let Ok(Value::Array(list)) = serde_json::from_slice(&output.stdout) else { return false };
        list.iter()
            .filter(|one| one["name"] == name)
            .all(|one| one["phase"].as_str().is_some_and(|phase| AT_REST.contains(&phase)))
    }

    /// Makes sure that the VM runs, and compares the daemon's information about the workspace. False if the workspace
    /// is gone or did not start.
    pub(super) fn ensure_running(&mut self, name: &str) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < UP_WITHIN {
            let Some(workspace) = self.workspaces.get(name) else { return false };
            let short = workspace.short().to_owned();
            let about = About { vm: Some(&short), fine: &["workspace_not_found"], ..About::default() };
            let answer = self.call("workspace_info", &json!({"workspace_id": name}), &about);
            if answer.is_refused_as("workspace_not_found") {
                self.lost(&format!("workspace {name} ({short}) is gone"));
                self.site.disown(self.index, name);
                self.workspaces.remove(name);
                return false;
            }
            let Some(info) = answer.done() else {
                if self.client.is_none() && self.site.is_over() && begun.elapsed() > UP_WITHIN / 2 {
                    return false;
                }
                pause(LOOK_EVERY);
                continue;
            };
            self.judge_info(name, &info.structured);
            match info.structured["state"].as_str() {
                Some("running") => {
                    if let Some(workspace) = self.workspaces.get_mut(name) {
                        workspace.may_be_stopped = false;
                    }
                    return true;
                }
                Some("stopped") => self.start(name, &short, &info.structured),
                Some(_) | None => pause(LOOK_EVERY),
            }
        }
        self.unexpected(&format!("{name} did not come up within {UP_WITHIN:?}"), begun);
        false
    }

    fn start(&mut self, name: &str, short: &str, info: &Value) {
        let was_struck = self.site.weather.take_strike(short);
        let Some(workspace) = self.workspaces.get_mut(name) else { return };
        let may_be_stopped = std::mem::take(&mut workspace.may_be_stopped);
        workspace.lose_memory();
        if !was_struck && !may_be_stopped {
            let reason = info["stop_reason"].as_str().unwrap_or("no reason").to_owned();
            self.unexpected(&format!("{name} ({short}) is stopped by itself: {reason}"), Instant::now());
        }
        // A call without an answer may still be in progress.
        let fine: &[&str] = if may_be_stopped { &["wrong_state"] } else { &[] };
        let about = About { vm: Some(short), starts_vm: true, fine, ..About::default() };
        let started = self.call("workspace_start", &json!({"workspace_id": name}), &about);
        if !started.is_done() {
            // The next check shows the state; a start without an answer may have left it stopped.
            if let Some(workspace) = self.workspaces.get_mut(name) {
                workspace.may_be_stopped = true;
            }
            pause(LOOK_EVERY);
        }
    }

    fn judge_info(&mut self, name: &str, info: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let port =
            |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let network = &info["network"];
        let info = Info {
            id: text(&info["workspace_id"]),
            ip: text(&info["ip"]),
            policy: Policy {
                allow_internet: network["allow_internet"].as_bool().unwrap_or(false),
                allowed_ports: list(&network["allowed_ports"]).iter().map(port).collect(),
            },
            forwards: list(&network["port_forwards"])
                .iter()
                .map(|one| (port(&one["guest_port"]), port(&one["host_port"])))
                .collect(),
            snapshots: list(&info["snapshots"])
                .iter()
                .map(|one| (text(&one["name"]), one["has_memory"].as_bool().unwrap_or(false)))
                .collect(),
            ledger_was_lost: self.site.ledger_was_lost.load(Ordering::Acquire),
        };
        let Some(workspace) = self.workspaces.get_mut(name) else { return };
        for difference in workspace.judge_info(&info) {
            self.lost(&format!("{name}: {difference}"));
        }
        // One loss is reported once.
        if let Some(workspace) = self.workspaces.get_mut(name) {
            workspace.snapshots.retain(|snapshot, _| info.snapshots.contains_key(snapshot));
            workspace.forwards.retain(|port, _| info.forwards.contains_key(port));
            workspace.policies = vec![info.policy];
            workspace.ip = info.ip;
        }
    }

    fn look_inside(&mut self, name: &str) -> Option<Seen> {
        // The model continues with the observed state, so it is synced to disk first: an earlier sync may not have
        // completed.
        let command = format!(
            "mkdir -p {DIR}; sync; cd {DIR} && for f in *; do [ -e \"$f\" ] && sha256sum \"$f\"; done; \
             echo token $(cat /dev/shm/token 2>/dev/null); echo count $(cat /dev/shm/count 2>/dev/null); \
             kill -0 $(cat /dev/shm/pid 2>/dev/null) 2>/dev/null && echo alive; true"
        );
        Some(parse(&self.sh(name, &command)?))
    }
}

/// Parses the output of the command above.
pub(super) fn parse(text: &str) -> Seen {
    let mut seen = Seen { files: BTreeMap::new(), ..Seen::default() };
    for line in text.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match first {
            "token" if !rest.is_empty() => seen.token = Some(rest.to_owned()),
            "count" => seen.count = rest.parse().ok(),
            "alive" => seen.alive = true,
            "token" => {}
            digest => {
                seen.files.insert(rest.to_owned(), digest.to_owned());
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_inside_is_parsed() {
        let seen = parse("aa  f1\nbb  f2\ntoken t1\ncount 7\nalive\n");
        assert_eq!(seen.files, BTreeMap::from([("f1".into(), "aa".into()), ("f2".into(), "bb".into())]));
        assert_eq!((seen.token.as_deref(), seen.count, seen.alive), (Some("t1"), Some(7), true));
        assert_eq!(parse("token\ncount\n"), Seen::default());
    }
}
