//! Disks of VMs in memory, with their snapshots.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_daemon::vms::{SnapshotFailure, SnapshotSizes, VolumeSizes};
use agentiso_daemon::{ChangedPath, ChangedPaths, SnapshotDiff};

/// Content and mode by path.
pub(crate) type Files = BTreeMap<String, (Vec<u8>, u32)>;
pub(crate) type SharedFiles = Arc<Mutex<Files>>;

/// Bytes that every file takes on these disks.
const BLOCK: u64 = 4096;

#[derive(Clone, Debug, Default)]
struct Disk {
    files: SharedFiles,
    snapshots: BTreeMap<SnapshotId, Kept>,
    /// Whether the fork is to start with memory.
    has_memory: bool,
}

#[derive(Clone, Debug)]
struct Kept {
    files: Files,
    has_memory: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Disks(Arc<Mutex<BTreeMap<WorkspaceId, Disk>>>);

impl Disks {
    fn with<T>(&self, id: WorkspaceId, act: impl FnOnce(&mut Disk) -> T) -> T {
        act(self.0.lock().expect("no panic").entry(id).or_default())
    }

    pub(crate) fn files(&self, id: WorkspaceId) -> SharedFiles {
        self.with(id, |disk| disk.files.clone())
    }

    pub(crate) fn snapshot(&self, id: WorkspaceId, snapshot: SnapshotId, has_memory: bool) {
        self.with(id, |disk| {
            let files = disk.files.lock().expect("no panic").clone();
            disk.snapshots.insert(snapshot, Kept { files, has_memory });
        });
    }

    /// Returns whether the snapshot has memory.
    pub(crate) fn restore(&self, id: WorkspaceId, snapshot: SnapshotId) -> bool {
        self.with(id, |disk| {
            let kept = disk.snapshots[&snapshot].clone();
            disk.files = Arc::new(Mutex::new(kept.files));
            kept.has_memory
        })
    }

    pub(crate) fn branch(&self, source: WorkspaceId, snapshot: SnapshotId, fork: WorkspaceId) {
        let kept = self.with(source, |disk| disk.snapshots[&snapshot].clone());
        let files = Arc::new(Mutex::new(kept.files));
        self.with(fork, |disk| *disk = Disk { files, has_memory: kept.has_memory, ..Disk::default() });
    }

    pub(crate) fn branch_has_memory(&self, fork: WorkspaceId) -> bool {
        self.with(fork, |disk| disk.has_memory)
    }

    pub(crate) fn delete(&self, id: WorkspaceId, snapshot: SnapshotId) -> Result<(), SnapshotFailure> {
        let gone = self.with(id, |disk| disk.snapshots.remove(&snapshot));
        gone.map(|_| ()).ok_or(SnapshotFailure::Failed { reason: "it is not there".to_owned() })
    }

    pub(crate) fn erase(&self, id: WorkspaceId) {
        self.0.lock().expect("no panic").remove(&id);
    }

    /// Workspaces that have a disk.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    pub(crate) fn usage(&self, id: WorkspaceId) -> VolumeSizes {
        self.with(id, |disk| {
            let size = |kept: &Kept| BLOCK * kept.files.len() as u64;
            let usage =
                |kept: &Kept| SnapshotSizes { used_bytes: size(kept), referenced_bytes: size(kept) + BLOCK };
            VolumeSizes {
                used_bytes: BLOCK,
                charged_bytes: BLOCK,
                virtual_bytes: 1 << 30,
                snapshots: disk.snapshots.iter().map(|(id, kept)| (*id, usage(kept))).collect(),
            }
        })
    }

    /// A file `/unreadable` stands for file systems that cannot be compared.
    pub(crate) fn diff(&self, id: WorkspaceId, snapshot: SnapshotId) -> SnapshotDiff {
        self.with(id, |disk| {
            let (old, new) = (&disk.snapshots[&snapshot].files, disk.files.lock().expect("no panic"));
            let path = |(path, (data, _)): (&String, &(Vec<u8>, u32))| ChangedPath {
                path: path.clone(),
                kind: "file".to_owned(),
                size: data.len() as u64,
            };
            let added: Vec<_> = new.iter().filter(|(path, _)| !old.contains_key(*path)).map(path).collect();
            let removed: Vec<_> = old.iter().filter(|(path, _)| !new.contains_key(*path)).map(path).collect();
            let changed =
                |(path, file): &(&String, &(Vec<u8>, u32))| old.get(*path).is_some_and(|was| was != *file);
            let modified: Vec<_> = new.iter().filter(changed).map(path).collect();
            let [added_total, modified_total, removed_total] =
                [&added, &modified, &removed].map(|list| list.len() as u64);
            let unreadable = new.contains_key("/unreadable");
            SnapshotDiff {
                changed_bytes: BLOCK * (added_total + modified_total + removed_total),
                paths: (!unreadable).then_some(ChangedPaths {
                    added,
                    modified,
                    removed,
                    added_total,
                    modified_total,
                    removed_total,
                }),
                paths_unknown: unreadable.then(|| "the file system is not ext4".to_owned()),
            }
        })
    }
}
