//! The snapshots of one workspace: a tree, and the point in it that the workspace's state descends from.
//!
//! ```text
//!  a ──▶ b ──▶ c          restore to b, then snapshot d:     a ──▶ b ──▶ c
//!              └ current                                           └──▶ d
//!                                                                       └ current
//! ```
//!
//! A parent always comes before its children, because the children of a deleted snapshot get its parent.

use agentiso_core::ids::SnapshotId;
use agentiso_core::names::{SnapshotName, WorkspaceName};
use agentiso_core::suggest::nearest;

use super::table::NAMES_IN_ERRORS;
use crate::error::OpError;
use crate::vms::DiskSnapshot;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) id: SnapshotId,
    pub(crate) name: SnapshotName,
    pub(crate) parent: Option<SnapshotId>,
    pub(crate) has_memory: bool,
    pub(crate) created_at: jiff::Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshots {
    /// The oldest first.
    all: Vec<Snapshot>,
    current: Option<SnapshotId>,
    /// Deleted from the registry, and perhaps still on the disk.
    removing: Vec<SnapshotId>,
}

impl Snapshots {
    /// Takes over the snapshots of a ledger and repairs contradictions: losing the whole ledger over them would
    /// cost far more than a wrong name or a missing edge in the tree. Returns a line for each repair.
    pub(super) fn mended(
        stored: Vec<Snapshot>,
        current: Option<SnapshotId>,
        removing: Vec<SnapshotId>,
    ) -> (Self, Vec<String>) {
        let (mut snapshots, mut mended) = (Self { removing, ..Self::default() }, Vec::new());
        for mut snapshot in stored {
            if snapshots.get(&snapshot.id).is_some() {
                mended.push(format!("snapshot {} is listed twice", snapshot.name));
                continue;
            }
            if snapshots.named(&snapshot.name).is_some() {
                let free = recovered_name(&snapshot.id);
                mended.push(format!("a second snapshot {} was renamed to {free}", snapshot.name));
                snapshot.name = free;
            }
            if let Some(parent) = snapshot.parent
                && snapshots.get(&parent).is_none()
            {
                mended.push(format!("the parent of snapshot {} is missing", snapshot.name));
                snapshot.parent = None;
            }
            snapshots.all.push(snapshot);
        }
        snapshots.current = current.filter(|id| snapshots.get(id).is_some());
        if snapshots.current != current {
            mended.push("the snapshot that its disk descends from is missing".to_owned());
        }
        (snapshots, mended)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Snapshot> {
        self.all.iter()
    }

    pub(crate) fn ids(&self) -> Vec<SnapshotId> {
        self.all.iter().map(|snapshot| snapshot.id).collect()
    }

    pub(crate) fn current(&self) -> Option<SnapshotId> {
        self.current
    }

    pub(crate) fn get(&self, id: &SnapshotId) -> Option<&Snapshot> {
        self.all.iter().find(|snapshot| snapshot.id == *id)
    }

    fn named(&self, name: &SnapshotName) -> Option<&Snapshot> {
        self.all.iter().find(|snapshot| snapshot.name == *name)
    }

    pub(crate) fn find(&self, of: &WorkspaceName, wanted: &SnapshotName) -> Result<&Snapshot, OpError> {
        self.named(wanted).ok_or_else(|| {
            let names = || self.all.iter().map(|snapshot| snapshot.name.as_str());
            OpError::SnapshotNotFound {
                name: of.clone(),
                wanted: wanted.to_string(),
                nearest: nearest(wanted.as_str(), names()).map(str::to_owned),
                known: names().take(NAMES_IN_ERRORS).map(str::to_owned).collect(),
            }
        })
    }

    /// Whether one more snapshot of this name may be taken.
    pub(crate) fn admit(&self, of: &WorkspaceName, name: &SnapshotName, limit: u32) -> Result<(), OpError> {
        if self.named(name).is_some() {
            return Err(OpError::SnapshotNameTaken { name: of.clone(), snapshot: name.clone() });
        }
        if self.all.len() as u64 >= u64::from(limit) {
            return Err(OpError::TooManySnapshots { name: of.clone(), limit });
        }
        Ok(())
    }

    /// Adds a snapshot of the current state, which then descends from it.
    pub(crate) fn add(
        &mut self,
        id: SnapshotId,
        name: SnapshotName,
        has_memory: bool,
        created_at: jiff::Timestamp,
    ) {
        self.all.push(Snapshot { id, name, parent: self.current, has_memory, created_at });
        self.current = Some(id);
    }

    /// Removes a snapshot; its children and the current state then descend from its parent.
    pub(crate) fn remove(&mut self, id: &SnapshotId) -> Option<Snapshot> {
        let at = self.all.iter().position(|snapshot| snapshot.id == *id)?;
        let gone = self.all.remove(at);
        for snapshot in &mut self.all {
            if snapshot.parent == Some(gone.id) {
                snapshot.parent = gone.parent;
            }
        }
        if self.current == Some(gone.id) {
            self.current = gone.parent;
        }
        self.removing.push(gone.id);
        Some(gone)
    }

    /// Snapshots that have to be removed from the disk.
    pub(crate) fn removing(&self) -> &[SnapshotId] {
        &self.removing
    }

    /// Forgets snapshots whose files are gone from the disk.
    pub(crate) fn removed(&mut self, gone: &[SnapshotId]) {
        self.removing.retain(|id| !gone.contains(id));
    }

    /// Enters snapshots that the disk has, the registry lacks and no record marks for removal: a parent before its
    /// children. Returns the names of those that were entered.
    pub(crate) fn enter_found(
        &mut self,
        on_disk: &[DiskSnapshot],
        listing: Listing,
        now: jiff::Timestamp,
    ) -> Vec<SnapshotName> {
        let mut entered = Vec::new();
        for found in on_disk {
            let unfinished = found.unconfirmed && listing == Listing::Complete;
            if unfinished || self.get(&found.id).is_some() || self.removing.contains(&found.id) {
                continue;
            }
            let name = recovered_name(&found.id);
            let parent = found.parent.filter(|parent| self.get(parent).is_some());
            let snapshot =
                Snapshot { id: found.id, name, parent, has_memory: found.has_memory, created_at: now };
            entered.push(snapshot.name.clone());
            self.all.push(snapshot);
        }
        entered
    }

    /// Sets the snapshot that the state descends from. An unknown snapshot counts as none.
    pub(crate) fn descend_from(&mut self, origin: Option<SnapshotId>) {
        self.current = origin.filter(|id| self.get(id).is_some());
    }
}

/// Whether the list of a workspace's snapshots is known to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    Complete,
    /// The list comes from a source that may lack something: no snapshot on the disk is removed because it is not
    /// listed.
    Uncertain,
}

/// A name that no other snapshot has.
fn recovered_name(id: &SnapshotId) -> SnapshotName {
    match SnapshotName::parse(&format!("recovered-{id}")) {
        Ok(name) => name,
        Err(_) => unreachable!("digits and dashes make a name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> SnapshotName {
        SnapshotName::parse(text).unwrap()
    }

    fn web() -> WorkspaceName {
        WorkspaceName::parse("web").unwrap()
    }

    fn added(snapshots: &mut Snapshots, text: &str) -> SnapshotId {
        let id = SnapshotId::random();
        snapshots.add(id, name(text), false, jiff::Timestamp::UNIX_EPOCH);
        id
    }

    fn parent(snapshots: &Snapshots, id: &SnapshotId) -> Option<SnapshotId> {
        snapshots.get(id).unwrap().parent
    }

    #[test]
    fn new_snapshot_descends_from_the_current_one() {
        let mut snapshots = Snapshots::default();
        let [a, b, c] = ["a", "b", "c"].map(|text| added(&mut snapshots, text));
        snapshots.descend_from(Some(b));
        let d = added(&mut snapshots, "d");
        let parents = [a, b, c, d].map(|id| parent(&snapshots, &id));
        assert_eq!(parents, [None, Some(a), Some(b), Some(b)]);
        assert_eq!(snapshots.current(), Some(d));
    }

    #[test]
    fn deleted_snapshot_leaves_children_to_its_parent() {
        let mut snapshots = Snapshots::default();
        let [a, b, c] = ["a", "b", "c"].map(|text| added(&mut snapshots, text));
        assert_eq!(snapshots.remove(&b).unwrap().name, name("b"));
        assert_eq!(parent(&snapshots, &c), Some(a));
        snapshots.remove(&c);
        assert_eq!(snapshots.current(), Some(a));
        snapshots.remove(&a);
        assert_eq!((snapshots.current(), snapshots.ids().len()), (None, 0));
        assert!(snapshots.remove(&a).is_none());
    }

    #[test]
    fn duplicate_and_excess_snapshots_are_refused() {
        let mut snapshots = Snapshots::default();
        added(&mut snapshots, "a");
        assert_eq!(snapshots.admit(&web(), &name("a"), 9).unwrap_err().code(), "snapshot_exists");
        assert!(snapshots.admit(&web(), &name("b"), 2).is_ok());
        added(&mut snapshots, "b");
        assert_eq!(snapshots.admit(&web(), &name("c"), 2).unwrap_err().code(), "too_many_snapshots");
    }

    #[test]
    fn missing_snapshot_error_suggests_known_names() {
        let mut snapshots = Snapshots::default();
        added(&mut snapshots, "before-upgrade");
        let error = snapshots.find(&web(), &name("before-upgrad")).unwrap_err();
        assert!(error.to_string().contains("did you mean \"before-upgrade\"?"), "{error}");
        assert!(matches!(error, OpError::SnapshotNotFound { known, .. } if known == ["before-upgrade"]));
    }

    #[test]
    fn contradictory_snapshots_are_mended_without_loss() {
        let mut good = Snapshots::default();
        let [a, b] = ["a", "b"].map(|text| added(&mut good, text));
        let mut stored: Vec<_> = good.iter().cloned().collect();
        let (same, mended) = Snapshots::mended(stored.clone(), Some(b), Vec::new());
        assert_eq!((same, mended.len()), (good, 0));

        let twin =
            Snapshot { id: SnapshotId::random(), parent: Some(SnapshotId::random()), ..stored[0].clone() };
        stored.push(stored[1].clone());
        stored.push(twin.clone());
        stored.swap(0, 1);
        let (mended, lines) = Snapshots::mended(stored, Some(SnapshotId::random()), Vec::new());
        assert_eq!(mended.ids(), [b, a, twin.id]);
        assert_eq!(mended.iter().map(|snapshot| snapshot.parent).collect::<Vec<_>>(), [None; 3]);
        assert!(mended.get(&twin.id).unwrap().name.as_str().starts_with("recovered-"));
        assert_eq!((mended.current(), lines.len()), (None, 5), "{lines:?}");
    }

    fn on_disk(id: SnapshotId, parent: Option<SnapshotId>, unconfirmed: bool) -> DiskSnapshot {
        DiskSnapshot { id, parent, has_memory: false, unconfirmed }
    }

    #[test]
    fn unknown_snapshots_are_kept() {
        let mut snapshots = Snapshots::default();
        let [a, deleted] = ["a", "deleted"].map(|text| added(&mut snapshots, text));
        snapshots.remove(&deleted);
        let [lost, child, unfinished] = [(); 3].map(|()| SnapshotId::random());
        let disk = [
            on_disk(a, None, true),
            on_disk(deleted, Some(a), false),
            on_disk(lost, Some(a), false),
            on_disk(child, Some(lost), false),
            on_disk(unfinished, None, true),
        ];
        let entered = snapshots.enter_found(&disk, Listing::Complete, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!((entered.len(), snapshots.ids()), (2, vec![a, lost, child]));
        assert_eq!((parent(&snapshots, &lost), parent(&snapshots, &child)), (Some(a), Some(lost)));
        let entered = snapshots.enter_found(&disk, Listing::Uncertain, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(entered, [recovered_name(&unfinished)]);
        snapshots.removed(&[deleted]);
        assert!(snapshots.removing().is_empty());
    }
}
