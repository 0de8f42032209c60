//! The model of one workspace: its contents, snapshots, policy and forwards.

use std::collections::{BTreeMap, BTreeSet};

use super::contents::{Contents, Memory, Seen};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) allow_internet: bool,
    pub(crate) allowed_ports: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) contents: Contents,
    pub(crate) has_memory: bool,
    /// False while a call without an answer may have made or deleted it.
    pub(crate) is_sure: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// `None`: the call that made it got no answer, so the port is unknown.
    pub(crate) host_port: Option<u16>,
    pub(crate) is_sure: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    pub(crate) id: String,
    pub(crate) ip: String,
    /// More than one after a restore without an answer.
    pub(crate) contents: Vec<Contents>,
    pub(crate) snapshots: BTreeMap<String, Snapshot>,
    /// More than one after a change without an answer.
    pub(crate) policies: Vec<Policy>,
    pub(crate) forwards: BTreeMap<u16, Forward>,
    /// The number of snapshots that a call may have left unfinished, not under their names.
    pub(crate) unfinished: usize,
    /// Snapshots that the daemon recovered from the disk after a ledger was lost, by the names it gave them.
    pub(crate) kept: BTreeSet<String>,
    /// A call that stops or starts the VM got no answer: the workspace may be stopped without another reason.
    pub(crate) may_be_stopped: bool,
}

/// The fields of `workspace_info` that the model knows.
#[derive(Clone, Debug)]
pub(crate) struct Info {
    pub(crate) id: String,
    pub(crate) ip: String,
    pub(crate) policy: Policy,
    pub(crate) forwards: BTreeMap<u16, u16>,
    pub(crate) snapshots: BTreeMap<String, bool>,
    /// Whether the ledger was damaged in this run: from then on every snapshot on a disk is kept.
    pub(crate) ledger_was_lost: bool,
}

/// The prefix of snapshots that the daemon recovered from the disk.
const KEPT: &str = "recovered-";

impl Workspace {
    pub(crate) fn new(id: &str, ip: &str, contents: Contents, policies: Vec<Policy>) -> Self {
        Self {
            id: id.to_owned(),
            ip: ip.to_owned(),
            contents: vec![contents],
            snapshots: BTreeMap::new(),
            policies,
            forwards: BTreeMap::new(),
            unfinished: 0,
            kept: BTreeSet::new(),
            may_be_stopped: false,
        }
    }

    /// The first digits of the id, which name the VM's runtime directory.
    pub(crate) fn short(&self) -> &str {
        self.id.get(..8).unwrap_or(&self.id)
    }

    pub(crate) fn lose_memory(&mut self) {
        self.contents.iter_mut().for_each(Contents::lose_memory);
    }

    /// The VM may have ended during a call without an answer, or may still have its memory.
    pub(crate) fn may_lose_memory(&mut self) {
        let without = self.contents.iter().filter(|one| one.memory != Memory::Empty).map(|one| {
            let mut without = one.clone();
            without.lose_memory();
            without
        });
        let without: Vec<_> = without.collect();
        self.contents.extend(without);
    }

    pub(crate) fn write_begins(&mut self, file: &str, digest: &str) {
        self.contents.iter_mut().for_each(|contents| contents.write_begins(file, digest));
    }

    pub(crate) fn write_ends(&mut self, file: &str, digest: &str) {
        self.contents.iter_mut().for_each(|contents| contents.write_ends(file, digest));
    }

    /// Compares the contents of the guest with all possible contents, and adopts the one that fits.
    pub(crate) fn judge_contents(&mut self, seen: &Seen) -> Result<(), Vec<String>> {
        let fits = self.contents.iter().position(|contents| contents.differences(seen).is_empty());
        let Some(at) = fits else {
            return Err(self.contents.first().map(|first| first.differences(seen)).unwrap_or_default());
        };
        let mut real = self.contents.swap_remove(at);
        real.learn(seen);
        self.contents = vec![real];
        Ok(())
    }

    /// Compares the daemon's information with the model, and adopts what was uncertain.
    pub(crate) fn judge_info(&mut self, info: &Info) -> Vec<String> {
        let mut found = Vec::new();
        if (&info.id, &info.ip) != (&self.id, &self.ip) {
            found.push(format!("it is {} at {}, was {} at {}", info.id, info.ip, self.id, self.ip));
        }
        if self.policies.contains(&info.policy) {
            self.policies = vec![info.policy.clone()];
        } else {
            found.push(format!("its policy is {:?}, must be {:?}", info.policy, self.policies));
        }
        let gone = |port: &u16| !info.forwards.contains_key(port);
        self.forwards.retain(|port, forward| forward.is_sure || !gone(port));
        for (port, forward) in &mut self.forwards {
            match (info.forwards.get(port), forward.host_port) {
                (None, _) => found.push(format!("the forward of port {port} is gone")),
                (Some(now), Some(was)) if *now != was => {
                    found.push(format!("port {port} is forwarded from {now}, was from {was}"));
                }
                (Some(now), _) => *forward = Forward { host_port: Some(*now), is_sure: true },
            }
        }
        for port in info.forwards.keys().filter(|port| !self.forwards.contains_key(*port)) {
            found.push(format!("port {port} is forwarded, must not be"));
        }
        found.extend(self.judge_snapshots(info));
        found
    }

    fn judge_snapshots(&mut self, info: &Info) -> Vec<String> {
        let there = &info.snapshots;
        let mut found = Vec::new();
        let before = self.snapshots.len();
        self.snapshots.retain(|name, snapshot| snapshot.is_sure || there.contains_key(name));
        self.unfinished += before - self.snapshots.len();
        for (name, snapshot) in &mut self.snapshots {
            let Some(has_memory) = there.get(name) else {
                found.push(format!("snapshot {name} is gone"));
                continue;
            };
            // A snapshot's name is entered last, so even after a call without an answer it is complete or absent.
            if *has_memory != snapshot.has_memory {
                found.push(format!("snapshot {name}: has_memory is {has_memory}"));
            }
            if !has_memory {
                snapshot.contents.lose_memory();
            }
            (snapshot.has_memory, snapshot.is_sure) = (*has_memory, true);
        }
        self.kept.retain(|name| there.contains_key(name));
        for name in there.keys().filter(|name| !self.snapshots.contains_key(*name)) {
            if self.kept.contains(name) {
                continue;
            }
            if info.ledger_was_lost && name.starts_with(KEPT) && self.unfinished > 0 {
                self.unfinished -= 1;
                self.kept.insert(name.clone());
            } else {
                found.push(format!("snapshot {name} is there, must not be"));
                // A surplus snapshot is reported once.
                self.kept.insert(name.clone());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed() -> Policy {
        Policy { allow_internet: false, allowed_ports: Vec::new() }
    }

    fn workspace() -> Workspace {
        Workspace::new("0123456789", "10.0.0.2", Contents::default(), vec![closed()])
    }

    fn info() -> Info {
        Info {
            id: "0123456789".to_owned(),
            ip: "10.0.0.2".to_owned(),
            policy: closed(),
            forwards: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            ledger_was_lost: false,
        }
    }

    fn snapshot(is_sure: bool) -> Snapshot {
        Snapshot { contents: Contents::default(), has_memory: false, is_sure }
    }

    #[test]
    fn lost_snapshot_policy_and_forward_are_noticed() {
        let mut ws = workspace();
        assert_eq!(ws.judge_info(&info()), Vec::<String>::new());
        ws.snapshots.insert("s".to_owned(), snapshot(true));
        ws.forwards.insert(7000, Forward { host_port: Some(4000), is_sure: true });
        ws.policies = vec![Policy { allow_internet: true, allowed_ports: vec![] }];
        let found = ws.judge_info(&info());
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn cut_snapshot_may_be_there_or_not() {
        let mut ws = workspace();
        ws.snapshots.insert("s".to_owned(), snapshot(false));
        assert!(ws.judge_info(&info()).is_empty());
        assert!(ws.snapshots.is_empty(), "it was learnt that it is not there");
        ws.snapshots.insert("s".to_owned(), snapshot(false));
        let with = Info { snapshots: BTreeMap::from([("s".to_owned(), false)]), ..info() };
        assert!(ws.judge_info(&with).is_empty());
        assert_eq!(ws.judge_info(&info()), ["snapshot s is gone"], "it was learnt that it is there");
    }

    #[test]
    fn cut_snapshot_without_its_memory_is_noticed() {
        let mut ws = workspace();
        ws.snapshots.insert("s".to_owned(), Snapshot { has_memory: true, ..snapshot(false) });
        let without = Info { snapshots: BTreeMap::from([("s".to_owned(), false)]), ..info() };
        assert_eq!(ws.judge_info(&without), ["snapshot s: has_memory is false"]);
        assert!(ws.judge_info(&without).is_empty(), "it was told");
    }

    #[test]
    fn lost_ledger_keeps_an_unfinished_snapshot() {
        let kept = Info { snapshots: BTreeMap::from([("recovered-1".to_owned(), false)]), ..info() };
        let after = Info { ledger_was_lost: true, ..kept.clone() };
        let mut ws = workspace();
        assert_eq!(ws.clone().judge_info(&after).len(), 1, "none was begun");
        ws.snapshots.insert("s".to_owned(), snapshot(false));
        assert_eq!(ws.clone().judge_info(&kept).len(), 1, "the ledger is whole");
        assert!(ws.judge_info(&info()).is_empty());
        assert!(ws.judge_info(&after).is_empty());
        assert!(ws.judge_info(&after).is_empty(), "it stays");
        let second = Info { snapshots: BTreeMap::from([("recovered-2".to_owned(), false)]), ..after };
        assert_eq!(ws.judge_info(&second).len(), 1, "only one was begun");
    }

    #[test]
    fn cut_restore_leaves_either_state_whole() {
        let (mut old, mut new) = (Contents::default(), Contents::default());
        for (file, digest) in [("f1", "old"), ("f2", "old")] {
            old.write_ends(file, digest);
        }
        new.write_ends("f1", "new");
        let seen = |files: &[(&str, &str)]| Seen {
            files: files.iter().map(|(n, d)| ((*n).to_owned(), (*d).to_owned())).collect(),
            ..Seen::default()
        };
        let mut ws = workspace();
        ws.contents = vec![old, new];
        assert!(ws.clone().judge_contents(&seen(&[("f1", "new"), ("f2", "old")])).is_err(), "a mixture");
        ws.judge_contents(&seen(&[("f1", "new")])).unwrap();
        assert!(ws.judge_contents(&seen(&[("f1", "old"), ("f2", "old")])).is_err(), "it was learnt");
    }

    #[test]
    fn changed_address_is_noticed() {
        let moved = Info { ip: "10.0.0.3".to_owned(), ..info() };
        assert_eq!(workspace().judge_info(&moved).len(), 1);
    }
}
