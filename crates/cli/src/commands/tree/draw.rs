//! Draws the tree of workspaces and snapshots. It makes no calls.
//!
//! ```text
//! ● dev               a workspace
//! └─ @one             its first snapshot
//!    @two             taken after @one: a line of descent goes straight down, however long it is
//!    ├─ ○ try         forked from @two
//!    @three           taken after @two
//!    ├─ @four         taken after @three,
//!    └─ @five         and so was this: here the tree branches
//! ```

use agentiso_core::lifecycle::PublicState;
use agentiso_daemon::control::wire::{Snapshot, Workspace};
use jiff::Timestamp;

use crate::commands::status::state_word;
use crate::output;

/// Workspaces with their snapshots and forks.
pub(super) struct Tree<'a> {
    all: &'a [Workspace],
    roots: Vec<&'a Workspace>,
}

/// A child of a snapshot or a workspace.
enum Child<'a> {
    Snapshot(&'a Snapshot),
    Fork(&'a Workspace),
}

type Row = [String; 5];

impl<'a> Tree<'a> {
    /// The tree of all workspaces. A fork whose snapshot is gone is a root.
    pub(super) fn whole(all: &'a [Workspace]) -> Self {
        Self { all, roots: all.iter().filter(|workspace| !is_attached(all, workspace)).collect() }
    }

    /// The tree of one workspace and its descendants.
    pub(super) fn below(all: &'a [Workspace], root: &'a Workspace) -> Self {
        Self { all, roots: vec![root] }
    }

    /// The workspaces in it, each before its forks.
    pub(super) fn workspaces(&self) -> Vec<&'a Workspace> {
        let mut found: Vec<&Workspace> = self.roots.clone();
        let mut next = 0;
        while let Some(workspace) = found.get(next).copied() {
            found.extend(workspace.snapshots.iter().flat_map(|snapshot| self.forks(snapshot)));
            next += 1;
        }
        found
    }

    pub(super) fn draw(&self, now: Timestamp) -> String {
        let mut drawing = Drawing { tree: self, now, rows: Vec::new() };
        for root in &self.roots {
            let note = root.forked_from.as_ref().map(|origin| {
                let gone = if is_attached(self.all, root) { "" } else { " (removed)" };
                format!("forked from {} @{}{gone}", origin.source_workspace_name, origin.snapshot_name)
            });
            drawing.workspace("", "", "", root, note);
        }
        output::table(["NAME", "STATE", "SIZE", "CREATED", ""], drawing.rows)
    }

    fn forks(&self, snapshot: &Snapshot) -> impl Iterator<Item = &'a Workspace> {
        let id = snapshot.id;
        self.all.iter().filter(move |workspace| {
            workspace.forked_from.as_ref().is_some_and(|origin| origin.snapshot_id == id)
        })
    }
}

/// Whether a workspace is a fork of a snapshot that still exists.
fn is_attached(all: &[Workspace], workspace: &Workspace) -> bool {
    workspace.forked_from.as_ref().is_some_and(|origin| {
        all.iter().flat_map(|source| &source.snapshots).any(|snapshot| snapshot.id == origin.snapshot_id)
    })
}

struct Drawing<'a> {
    tree: &'a Tree<'a>,
    now: Timestamp,
    rows: Vec<Row>,
}

impl Drawing<'_> {
    /// `before` is the indentation of all lines below the parent, `branch` leads to this workspace, and `under`
    /// replaces `branch` in the lines below it.
    fn workspace(
        &mut self,
        before: &str,
        branch: &str,
        under: &str,
        workspace: &Workspace,
        note: Option<String>,
    ) {
        let dot = match workspace.state {
            PublicState::Running => '●',
            PublicState::Stopped => '○',
            PublicState::Suspended => '◐',
        };
        self.rows.push([
            format!("{before}{branch}{dot} {}", workspace.name),
            state_word(workspace.state).to_owned(),
            workspace.disk_used_bytes.map(output::size).unwrap_or_default(),
            output::age(workspace.created_at, self.now),
            note.unwrap_or_default(),
        ]);
        let is_there = |name: &String| workspace.snapshots.iter().any(|snapshot| snapshot.name == *name);
        let first =
            workspace.snapshots.iter().filter(|snapshot| !snapshot.parent.as_ref().is_some_and(is_there));
        let children = first.map(Child::Snapshot).collect();
        self.children(&format!("{before}{under}"), workspace, children);
    }

    fn children(&mut self, before: &str, workspace: &Workspace, children: Vec<Child<'_>>) {
        let last = children.len().saturating_sub(1);
        for (index, child) in children.into_iter().enumerate() {
            let (branch, under) = if index == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            match child {
                Child::Fork(fork) => self.workspace(before, branch, under, fork, None),
                Child::Snapshot(snapshot) => self.line_of_descent(before, branch, under, workspace, snapshot),
            }
        }
    }

    /// A snapshot and its descendants, straight down until one has several children.
    fn line_of_descent(
        &mut self,
        before: &str,
        branch: &str,
        under: &str,
        workspace: &Workspace,
        first: &Snapshot,
    ) {
        let below = format!("{before}{under}");
        self.snapshot(&format!("{before}{branch}"), first);
        let mut snapshot = first;
        loop {
            let after: Vec<&Snapshot> = workspace
                .snapshots
                .iter()
                .filter(|next| next.parent.as_ref() == Some(&snapshot.name))
                .collect();
            let forks: Vec<&Workspace> = self.tree.forks(snapshot).collect();
            if let [next] = after.as_slice() {
                for fork in forks {
                    self.workspace(&below, "├─ ", "│  ", fork, None);
                }
                self.snapshot(&below, next);
                snapshot = next;
            } else {
                let forks = forks.into_iter().map(Child::Fork);
                let children = forks.chain(after.into_iter().map(Child::Snapshot)).collect();
                return self.children(&below, workspace, children);
            }
        }
    }

    fn snapshot(&mut self, before: &str, snapshot: &Snapshot) {
        self.rows.push([
            format!("{before}@{}", snapshot.name),
            if snapshot.has_memory { "snapshot with memory" } else { "snapshot" }.to_owned(),
            snapshot.used_bytes.map(output::size).unwrap_or_default(),
            output::age(snapshot.created_at, self.now),
            if snapshot.current { "◀ current" } else { "" }.to_owned(),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_core::ids::SnapshotId;
    use serde_json::json;

    const NOW: i64 = 1_000_000;

    fn at(ago: i64) -> Timestamp {
        Timestamp::from_second(NOW - ago).unwrap()
    }

    fn workspace(name: &str, state: &str, snapshots: Vec<Snapshot>) -> Workspace {
        serde_json::from_value(json!({
            "id": agentiso_core::ids::WorkspaceId::random(), "name": name, "state": state, "phase": "running",
            "base_image": "debian-dev", "ip": "10.42.0.2",
            "resources": {"vcpus": 1, "memory_mb": 256, "disk_gb": 2}, "owner": null,
            "network": {"allow_internet": false, "allow_inter_vm": false}, "created_at": at(7_200),
            "disk_used_bytes": 3 << 20, "disk_volsize_bytes": null, "stop_reason": null, "pid": null, "rung": null,
            "snapshots": snapshots,
        }))
        .unwrap()
    }

    fn snapshot(name: &str, parent: Option<&str>) -> Snapshot {
        Snapshot {
            id: SnapshotId::random(),
            name: name.to_owned(),
            has_memory: false,
            parent: parent.map(str::to_owned),
            created_at: at(3_600),
            used_bytes: Some(1 << 20),
            referenced_bytes: None,
            current: false,
            forks: Vec::new(),
        }
    }

    fn forked(mut fork: Workspace, source: &Workspace, snapshot: &Snapshot) -> Workspace {
        fork.forked_from = serde_json::from_value(json!({
            "source_workspace_id": source.id, "source_workspace_name": source.name,
            "snapshot_name": snapshot.name, "snapshot_id": snapshot.id,
        }))
        .unwrap();
        fork
    }

    /// Workspace dev with a line of three snapshots, of which the middle one was forked twice and the last one
    /// branches. One of the forks was snapshotted and forked again.
    fn family() -> Vec<Workspace> {
        let two = Snapshot { has_memory: true, used_bytes: Some(256 << 20), ..snapshot("two", Some("one")) };
        let five = Snapshot { current: true, used_bytes: None, ..snapshot("five", Some("three")) };
        let dev = workspace(
            "dev",
            "running",
            vec![
                snapshot("one", None),
                two,
                snapshot("three", Some("two")),
                snapshot("four", Some("three")),
                five,
            ],
        );
        let inner = Snapshot { current: true, ..snapshot("mine", None) };
        let a = forked(workspace("try-1", "running", vec![inner]), &dev, &dev.snapshots[1]);
        let b = forked(workspace("try-2", "stopped", Vec::new()), &dev, &dev.snapshots[1]);
        let c = forked(workspace("deeper", "suspended", Vec::new()), &a, &a.snapshots[0]);
        let gone = workspace("gone", "running", vec![snapshot("base", None)]);
        let orphan = forked(workspace("orphan", "running", Vec::new()), &gone, &gone.snapshots[0]);
        vec![dev, a, b, c, orphan]
    }

    #[test]
    fn orphaned_fork_is_its_own_root() {
        let all = family();
        let expected = "\
NAME                  STATE                 SIZE       CREATED
● dev                 running               3.0 MiB    2 hours ago
└─ @one               snapshot              1.0 MiB    60 minutes ago
   @two               snapshot with memory  256.0 MiB  60 minutes ago
   ├─ ● try-1         running               3.0 MiB    2 hours ago
   │  └─ @mine        snapshot              1.0 MiB    60 minutes ago  ◀ current
   │     └─ ◐ deeper  suspended             3.0 MiB    2 hours ago
   ├─ ○ try-2         stopped               3.0 MiB    2 hours ago
   @three             snapshot              1.0 MiB    60 minutes ago
   ├─ @four           snapshot              1.0 MiB    60 minutes ago
   └─ @five           snapshot                         60 minutes ago  ◀ current
● orphan              running               3.0 MiB    2 hours ago     forked from gone @base (removed)";
        assert_eq!(Tree::whole(&all).draw(at(0)), expected);
    }

    #[test]
    fn subtree_root_shows_its_origin() {
        let all = family();
        let drawn = Tree::below(&all, &all[1]).draw(at(0));
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 4, "{drawn}");
        assert!(lines[1].starts_with("● try-1") && lines[1].ends_with("forked from dev @two"), "{drawn}");
        let names = |tree: &Tree<'_>| tree.workspaces().iter().map(|w| w.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&Tree::below(&all, &all[1])), ["try-1", "deeper"]);
        assert_eq!(names(&Tree::whole(&all)), ["dev", "orphan", "try-1", "try-2", "deeper"]);
    }

    #[test]
    fn linear_snapshots_are_not_indented() {
        let names: Vec<String> = (0..100).map(|number| format!("step-{number}")).collect();
        let snapshots = (0..100).map(|n| snapshot(&names[n], n.checked_sub(1).map(|n| names[n].as_str())));
        let all = vec![workspace("long", "running", snapshots.collect())];
        let drawn = Tree::whole(&all).draw(at(0));
        assert_eq!(drawn.lines().count(), 102);
        assert!(drawn.lines().all(|line| line.chars().count() < 60), "{drawn}");
    }

    #[test]
    fn snapshot_with_missing_parent_is_first_level() {
        let all = vec![workspace("w", "stopped", vec![snapshot("a", Some("lost")), snapshot("b", None)])];
        let drawn = Tree::whole(&all).draw(at(0));
        let starts = ["● ", "○ w", "├─ @a", "└─ @b"];
        assert!(drawn.lines().zip(starts).skip(1).all(|(line, start)| line.starts_with(start)), "{drawn}");
    }
}
