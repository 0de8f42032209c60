//! Execution of intents: this file creates and destroys workspaces, the files beside it do the rest.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Player;
use super::call::{About, Answer};
use super::verify::SETTLED_AFTER;
use crate::model::{Contents, Policy, Workspace};
use crate::plan::Deed;
use crate::rng::pick;
use crate::site::pause;

/// The time in which a call without an answer is finished or undone.
const UNDONE_WITHIN: Duration = Duration::from_secs(90);

/// A workspace that was not listed for this long does not appear any more.
const STAYS_AWAY_AFTER: Duration = Duration::from_secs(3);

const LOOK_EVERY: Duration = Duration::from_millis(300);

impl Player<'_> {
    /// Carries out intents until the run is over.
    pub(crate) fn play(&mut self) {
        while !self.site.is_over() {
            let mut intent = self.intents.next();
            if let Some(deed) = self.site.weather.take_wanted() {
                intent.deed = deed;
            }
            let deed = self.possible(intent.deed);
            self.note(&format!("-- {:?}, {deed:?}", intent.deed));
            let calm_since = Instant::now();
            self.acted = false;
            self.carry_out(deed, intent.choice);
            if !self.acted {
                self.note("nothing was done");
            } else if deed.is_fault() {
                self.site.journal.count_fault(&format!("{deed:?}"));
            } else {
                self.site.journal.count_deed(format!("{deed:?}"));
            }
            // After a fault, one workspace is compared with the model at once.
            if !self.site.weather.was_calm_since(calm_since) && !self.site.is_over() {
                let sample = self.rng.draw();
                self.check(sample);
            }
        }
    }

    /// The deed itself, or the nearest one that is possible in the current state.
    fn possible(&self, deed: Deed) -> Deed {
        let members = self.team.as_ref().map_or(0, |team| team.members().count());
        let has_room = |more: usize| self.workspaces.len() + members + more <= self.cap;
        let needs_snapshot = matches!(deed, Deed::Restore | Deed::Fork | Deed::DeleteSnapshot | Deed::Swarm);
        if self.workspaces.is_empty() {
            Deed::Create
        } else if matches!(deed, Deed::Create | Deed::Fork) && !has_room(1) {
            Deed::Destroy
        } else if deed == Deed::Swarm && !has_room(2)
            || deed == Deed::Team && self.team.is_none() && !has_room(2)
        {
            Deed::Check
        } else if deed == Deed::Mail && self.team.is_none() {
            Deed::Write
        } else if needs_snapshot && !self.has_snapshot() {
            Deed::SnapshotDisk
        } else {
            deed
        }
    }

    fn carry_out(&mut self, deed: Deed, choice: u64) {
        match deed {
            Deed::Create => self.create(),
            Deed::Destroy => self.destroy_one(choice),
            Deed::Stop => self.stop(choice),
            Deed::Exec => self.exec(choice),
            Deed::Write => self.write(choice),
            Deed::WriteLarge => self.write_large(choice),
            Deed::Count => self.count(choice),
            Deed::Check => self.check(choice),
            Deed::SnapshotDisk => self.snapshot(choice, false),
            Deed::SnapshotMemory => self.snapshot(choice, true),
            Deed::Restore => self.restore(choice),
            Deed::Fork => self.fork(choice),
            Deed::DeleteSnapshot => self.delete_snapshot(choice),
            Deed::Policy => self.policy(choice),
            Deed::Forward => self.forward(choice),
            Deed::Team => self.team(choice),
            Deed::Mail => self.mail(choice),
            Deed::Swarm => self.swarm(choice),
            Deed::Trespass => self.trespass(choice),
            Deed::GuestPanic => self.panic_guest(choice),
            Deed::GuestOom => self.fill_memory(choice),
            Deed::GuestClock => self.turn_clock(choice),
        }
    }

    /// The name of one of the client's workspaces, with a running VM.
    pub(super) fn one_running(&mut self, choice: u64) -> Option<String> {
        let names: Vec<String> = self.workspaces.keys().cloned().collect();
        let name = pick(&names, choice)?.clone();
        self.ensure_running(&name).then_some(name)
    }

    fn create(&mut self) {
        let name = self.fresh("w");
        let about = About { makes_vms: true, ..About::default() };
        match self.call("workspace_create", &json!({"name": name}), &about).done() {
            Some(result) => {
                let closed = Policy { allow_internet: false, allowed_ports: Vec::new() };
                self.enter(&name, &result.structured, Contents::default(), vec![closed]);
            }
            None => self.discard(&name),
        }
    }

    /// Adds a workspace from an answer to the model, with one of these policies.
    pub(super) fn enter(&mut self, name: &str, answer: &Value, contents: Contents, policies: Vec<Policy>) {
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        let workspace = Workspace::new(&text("workspace_id"), &text("ip"), contents, policies);
        self.site.own(self.index, name, workspace.short());
        self.workspaces.insert(name.to_owned(), workspace);
    }

    fn destroy_one(&mut self, choice: u64) {
        let names: Vec<String> = self.workspaces.keys().cloned().collect();
        if let Some(name) = pick(&names, choice) {
            self.destroy(name);
        }
    }

    pub(super) fn destroy(&mut self, name: &str) {
        self.site.disown(self.index, name);
        let short = self.workspaces.get(name).map(|ws| ws.short().to_owned());
        let about = About { vm: short.as_deref(), ..About::default() };
        let answer = self.call("workspace_destroy", &json!({"workspace_id": name}), &about);
        self.workspaces.remove(name);
        match answer {
            Answer::Done(_) => self.must_be_gone(name),
            Answer::Refused { .. } | Answer::Cut => self.discard(name),
        }
    }

    fn must_be_gone(&mut self, name: &str) {
        if self.is_listed(name) == Some(true) {
            self.unexpected(&format!("{name} is still listed after it was destroyed"), Instant::now());
        }
    }

    pub(super) fn is_listed(&mut self, name: &str) -> Option<bool> {
        let list = self.call("workspace_list", &json!({}), &About::default()).done()?.json();
        Some(list.as_array().into_iter().flatten().any(|one| one["name"] == name))
    }

    /// Destroys a workspace that a call without an answer may have made or left.
    pub(super) fn discard(&mut self, name: &str) {
        let begun = Instant::now();
        let mut away_since: Option<Instant> = None;
        while begun.elapsed() < UNDONE_WITHIN {
            match self.is_listed(name) {
                Some(true) => {
                    away_since = None;
                    // A workspace that is being made or removed, or whose old session still owns it, gives one of these
                    // codes.
                    let fine =
                        ["workspace_not_found", "wrong_state", "owner_active", "not_owned", "cancelled"];
                    let about = About { makes_vms: true, fine: &fine, ..About::default() };
                    self.call("workspace_destroy", &json!({"workspace_id": name}), &about);
                }
                Some(false) => {
                    let since = *away_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > STAYS_AWAY_AFTER {
                        return;
                    }
                }
                None if self.site.is_over() && self.client.is_none() => return,
                None => {}
            }
            pause(LOOK_EVERY);
        }
        self.unexpected(&format!("{name} could not be removed within {UNDONE_WITHIN:?}"), begun);
    }

    fn stop(&mut self, choice: u64) {
        let Some(name) = self.one_running(choice) else { return };
        let short = self.workspaces[&name].short().to_owned();
        let about = About { vm: Some(&short), ..About::default() };
        let answer = self.call("workspace_stop", &json!({"workspace_id": name}), &about);
        let Some(workspace) = self.workspaces.get_mut(&name) else { return };
        workspace.may_be_stopped = true;
        match answer {
            Answer::Done(_) => workspace.lose_memory(),
            Answer::Refused { .. } | Answer::Cut => {
                workspace.may_lose_memory();
                self.wait_until_settled(&name, SETTLED_AFTER);
            }
        }
        self.check_one(&name);
    }
}
