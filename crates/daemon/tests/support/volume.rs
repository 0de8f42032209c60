//! The disk of a workspace as one file: its content, its snapshots, and the tree they form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use agentiso_core::ids::SnapshotId;
use agentiso_daemon::vms::DiskSnapshot;
use serde::{Deserialize, Serialize};

const FILE: &str = "disk.qcow2";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) content: String,
    /// Memory that a fork gets for its first boot.
    pub(crate) memory: Option<String>,
    pub(crate) origin: Option<SnapshotId>,
    pub(crate) snapshots: BTreeMap<SnapshotId, Frozen>,
    /// Snapshots begun since the volume was last settled.
    #[serde(default)]
    pub(crate) unconfirmed: BTreeSet<SnapshotId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frozen {
    pub(crate) content: String,
    pub(crate) memory: Option<String>,
    pub(crate) parent: Option<SnapshotId>,
}

impl Volume {
    pub(crate) fn fresh(content: &str) -> Self {
        Self { content: content.to_owned(), ..Self::default() }
    }

    pub(crate) fn load(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join(FILE)).ok()?;
        Some(serde_json::from_str(&text).expect("a whole volume"))
    }

    /// Replaces the file as a whole: a crash leaves the old one or the new one.
    pub(crate) fn save(&self, directory: &Path) {
        fs::create_dir_all(directory).unwrap();
        let temporary = directory.join("disk.tmp");
        fs::write(&temporary, serde_json::to_string(self).unwrap()).unwrap();
        fs::rename(temporary, directory.join(FILE)).unwrap();
    }

    pub(crate) fn freeze(&mut self, id: SnapshotId, memory: Option<String>) {
        let frozen = Frozen { content: self.content.clone(), memory, parent: self.origin };
        self.snapshots.insert(id, frozen);
        self.unconfirmed.insert(id);
        self.origin = Some(id);
    }

    pub(crate) fn go_back(&mut self, id: SnapshotId) -> Option<Frozen> {
        let frozen = self.snapshots.get(&id)?.clone();
        self.content.clone_from(&frozen.content);
        self.origin = Some(id);
        Some(frozen)
    }

    pub(crate) fn branch(&self, id: SnapshotId) -> Option<Self> {
        let frozen = self.snapshots.get(&id)?;
        Some(Self { memory: frozen.memory.clone(), ..Self::fresh(&frozen.content) })
    }

    pub(crate) fn remove(&mut self, id: SnapshotId) {
        let Some(gone) = self.snapshots.remove(&id) else { return };
        let children = self.snapshots.values_mut().filter(|frozen| frozen.parent == Some(id));
        children.for_each(|child| child.parent = gone.parent);
        if self.origin == Some(id) {
            self.origin = gone.parent;
        }
    }

    pub(crate) fn settle(&mut self, known: &[SnapshotId]) {
        // As the real volume does: a list with snapshots that do not exist may also lack some that do.
        if known.iter().all(|id| self.snapshots.contains_key(id)) {
            let unknown: Vec<_> = self.snapshots.keys().filter(|id| !known.contains(id)).copied().collect();
            unknown.into_iter().for_each(|id| self.remove(id));
        }
        self.unconfirmed.clear();
    }

    /// Lists a parent before its children.
    pub(crate) fn listed(&self) -> Vec<DiskSnapshot> {
        let depth = |id: &SnapshotId| {
            let parent = |id: &SnapshotId| self.snapshots.get(id).and_then(|frozen| frozen.parent);
            std::iter::successors(Some(*id), |id| parent(id)).count()
        };
        let mut listed: Vec<_> = self
            .snapshots
            .iter()
            .map(|(id, frozen)| DiskSnapshot {
                id: *id,
                parent: frozen.parent,
                has_memory: frozen.memory.is_some(),
                unconfirmed: self.unconfirmed.contains(id),
            })
            .collect();
        listed.sort_by_key(|snapshot| depth(&snapshot.id));
        listed
    }
}
