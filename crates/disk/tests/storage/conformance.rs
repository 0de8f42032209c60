//! Tests that every storage backend must pass.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agentiso_core::ids::SnapshotId;
use agentiso_disk::{DiskError, KeyframeDue, Layers, Storage, VOLUME_FILE};
use tokio_util::sync::CancellationToken;

use crate::lab::{Content, Lab, VIRTUAL, image_content};
use crate::memory::BLOCK;
use crate::memory_lab::MemoryLab;
use crate::qcow2_lab::Qcow2Lab;

/// Runs each test of this file for each backend.
macro_rules! for_every_backend {
    ($($name:ident)*) => {
        mod memory {
            $(#[tokio::test] async fn $name() { super::$name(super::Bench::<super::MemoryLab>::new()).await; })*
        }
        mod qcow2 {
            $(#[tokio::test] async fn $name() { super::$name(super::Bench::<super::Qcow2Lab>::new()).await; })*
        }
    };
}

for_every_backend! {
    fresh_volume_reads_as_its_image
    snapshot_keeps_its_content
    abandoned_snapshot_leaves_no_trace
    steps_out_of_order_are_refused
    restore_keeps_the_other_snapshots
    origin_is_the_nearest_remaining_snapshot
    fork_and_source_are_isolated
    fork_survives_deletion_of_its_source
    deleting_snapshots_in_any_order_leaves_one_layer
    layers_shared_with_a_fork_are_not_merged
    deletion_frees_the_reported_size
    snapshot_memory_is_counted_and_removed
    interrupted_pivot_settles_by_vm_head
    settle_removes_only_own_unknown_files
    volume_with_missing_layer_is_left_alone
    online_merge_updates_the_record
    settle_finishes_a_partly_rebased_merge
    unreadable_record_allows_only_deletion
    lost_record_removes_no_layer
    outdated_record_removes_no_layer
    missing_known_snapshot_blocks_removal
    changed_record_bytes_are_refused
    keyframe_shortens_chain_and_keeps_content
    large_layers_stay_below_the_keyframe
    keyframe_adoption_spares_running_and_shared_layers
}

/// A backend with one volume, and shorthands.
pub(crate) struct Bench<B: Lab> {
    pub(crate) lab: B,
    pub(crate) storage: B::Backend,
    pub(crate) dir: PathBuf,
}

impl<B: Lab> Bench<B> {
    pub(crate) fn new() -> Self {
        let lab = B::new();
        Self { storage: lab.backend(), dir: lab.directory("volume"), lab }
    }

    pub(crate) async fn create(&self) -> PathBuf {
        self.storage.create_from_image(&self.dir, &self.lab.image(), VIRTUAL).await.unwrap()
    }

    pub(crate) async fn write(&self, dir: &Path, block: u64, value: u8) {
        self.lab.write(&self.storage.head(dir).await.unwrap(), block, value);
    }

    pub(crate) async fn snapshot(&self, dir: &Path) -> SnapshotId {
        let id = SnapshotId::random();
        let pivot = self.storage.begin_snapshot(dir, id).await.unwrap();
        self.storage.finish_snapshot(dir, id).await.unwrap();
        assert_eq!(self.storage.head(dir).await.unwrap(), pivot.to);
        id
    }

    async fn head(&self, dir: &Path) -> Content {
        self.lab.content(&self.storage.head(dir).await.unwrap())
    }

    async fn snapshot_content(&self, dir: &Path, id: SnapshotId) -> Content {
        self.lab.content(&self.storage.chain(dir, Some(id)).await.unwrap()[0])
    }

    pub(crate) async fn merge_all(&self, dir: &Path) {
        while let Some(merge) = self.storage.redundant(dir).await.unwrap().first() {
            self.storage.merge_offline(dir, merge).await.unwrap();
        }
    }

    fn layers(&self, dir: &Path) -> usize {
        self.storage.names(dir).unwrap().iter().filter(|name| name.ends_with(".qcow2")).count()
    }

    fn names(&self) -> BTreeSet<String> {
        self.storage.names(&self.dir).unwrap().into_iter().collect()
    }

    /// The image's content with these blocks overwritten.
    fn image_with(&self, blocks: &[(u64, u8)]) -> Content {
        let mut content = image_content();
        content.extend(blocks.iter().copied());
        content.retain(|_, value| *value != 0);
        content
    }
}

async fn fresh_volume_reads_as_its_image<B: Lab>(bench: Bench<B>) {
    let head = bench.create().await;
    assert_eq!(bench.storage.head(&bench.dir).await.unwrap(), head);
    assert_eq!(bench.lab.content(&head), image_content());
    let chain = bench.storage.chain(&bench.dir, None).await.unwrap();
    assert_eq!(chain, [head, bench.dir.join("layer0.qcow2")]);
    // A volume that is created again in the same directory is fresh again.
    bench.write(&bench.dir, 1, 5).await;
    bench.snapshot(&bench.dir).await;
    bench.create().await;
    assert_eq!(bench.head(&bench.dir).await, image_content());
    assert_eq!(bench.layers(&bench.dir), 2);
}

async fn snapshot_keeps_its_content<B: Lab>(bench: Bench<B>) {
    let dir = &bench.dir;
    bench.create().await;
    bench.write(dir, 1, 1).await;
    let first = bench.snapshot(dir).await;
    bench.write(dir, 1, 2).await;
    bench.write(dir, 0, 0).await;
    let second = bench.snapshot(dir).await;
    bench.write(dir, 3, 3).await;
    assert_eq!(bench.snapshot_content(dir, first).await, bench.image_with(&[(1, 1)]));
    assert_eq!(bench.snapshot_content(dir, second).await, bench.image_with(&[(1, 2), (0, 0)]));
    assert_eq!(bench.head(dir).await, bench.image_with(&[(1, 2), (0, 0), (3, 3)]));
    assert_eq!(bench.storage.chain(dir, None).await.unwrap().len(), 4);
}

async fn abandoned_snapshot_leaves_no_trace<B: Lab>(bench: Bench<B>) {
    let dir = &bench.dir;
    let head = bench.create().await;
    let names = bench.storage.names(dir).unwrap();
    let id = SnapshotId::random();
    let pivot = bench.storage.begin_snapshot(dir, id).await.unwrap();
    assert_eq!(pivot.from, head);
    bench.lab.write(&pivot.from, 2, 2);
    bench.storage.abandon_snapshot(dir, id).await.unwrap();
    bench.storage.abandon_snapshot(dir, id).await.unwrap();
    assert_eq!(bench.storage.names(dir).unwrap(), names);
    assert_eq!(bench.head(dir).await, bench.image_with(&[(2, 2)]));
}

async fn steps_out_of_order_are_refused<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    let (one, two) = (SnapshotId::random(), SnapshotId::random());
    assert!(matches!(storage.head(dir).await, Err(DiskError::NoVolume(_))));
    bench.create().await;
    assert!(matches!(storage.finish_snapshot(dir, one).await, Err(DiskError::NotPivoting { .. })));
    assert!(matches!(storage.restore(dir, one).await, Err(DiskError::NoSnapshot { .. })));
    let fork = bench.lab.directory("fork");
    assert!(matches!(storage.fork(dir, one, &fork).await, Err(DiskError::NoSnapshot { .. })));
    storage.begin_snapshot(dir, one).await.unwrap();
    assert!(matches!(storage.begin_snapshot(dir, two).await, Err(DiskError::Pivoting { .. })));
    assert!(matches!(storage.finish_snapshot(dir, two).await, Err(DiskError::NotPivoting { .. })));
    assert!(matches!(storage.restore(dir, one).await, Err(DiskError::NoSnapshot { .. })));
    storage.finish_snapshot(dir, one).await.unwrap();
    storage.finish_snapshot(dir, one).await.unwrap();
    assert!(matches!(storage.abandon_snapshot(dir, one).await, Err(DiskError::NotPivoting { .. })));
    assert!(matches!(storage.begin_snapshot(dir, one).await, Err(DiskError::SnapshotExists { .. })));
    storage.forget_snapshot(dir, two).await.unwrap();
    assert_eq!(storage.names(&fork).unwrap(), Vec::<String>::new());
}

async fn restore_keeps_the_other_snapshots<B: Lab>(bench: Bench<B>) {
    let dir = &bench.dir;
    bench.create().await;
    bench.write(dir, 1, 1).await;
    let first = bench.snapshot(dir).await;
    bench.write(dir, 1, 2).await;
    let second = bench.snapshot(dir).await;
    bench.write(dir, 1, 3).await;
    let layers = bench.layers(dir);
    let head = bench.storage.restore(dir, first).await.unwrap();
    assert_eq!(bench.lab.content(&head), bench.image_with(&[(1, 1)]));
    assert_eq!(bench.layers(dir), layers, "what was written last is gone");
    bench.write(dir, 2, 9).await;
    let branch = bench.snapshot(dir).await;
    for (snapshot, blocks) in [(first, vec![(1, 1)]), (second, vec![(1, 2)]), (branch, vec![(1, 1), (2, 9)])]
    {
        assert_eq!(bench.snapshot_content(dir, snapshot).await, bench.image_with(&blocks));
        bench.storage.restore(dir, snapshot).await.unwrap();
        assert_eq!(bench.head(dir).await, bench.image_with(&blocks));
    }
}

async fn origin_is_the_nearest_remaining_snapshot<B: Lab>(bench: Bench<B>) {
    let origin = async || bench.storage.origin(&bench.dir).await.unwrap();
    bench.create().await;
    assert_eq!(origin().await, None);
    let first = bench.snapshot(&bench.dir).await;
    let second = bench.snapshot(&bench.dir).await;
    assert_eq!(origin().await, Some(second));
    bench.storage.restore(&bench.dir, first).await.unwrap();
    assert_eq!(origin().await, Some(first));
    bench.storage.restore(&bench.dir, second).await.unwrap();
    bench.storage.forget_snapshot(&bench.dir, second).await.unwrap();
    assert_eq!(origin().await, Some(first));
    bench.merge_all(&bench.dir).await;
    assert_eq!(origin().await, Some(first));
    bench.storage.forget_snapshot(&bench.dir, first).await.unwrap();
    assert_eq!(origin().await, None);
    let dir = bench.lab.directory("fork");
    let third = bench.snapshot(&bench.dir).await;
    bench.storage.fork(&bench.dir, third, &dir).await.unwrap();
    assert_eq!(bench.storage.origin(&dir).await.unwrap(), None, "it is not a snapshot of the fork's");
}

async fn fork_and_source_are_isolated<B: Lab>(bench: Bench<B>) {
    let (dir, fork) = (&bench.dir, bench.lab.directory("fork"));
    bench.create().await;
    bench.write(dir, 1, 1).await;
    let snapshot = bench.snapshot(dir).await;
    bench.write(dir, 1, 2).await;
    let head = bench.storage.fork(dir, snapshot, &fork).await.unwrap();
    assert_eq!(bench.storage.head(&fork).await.unwrap(), head);
    bench.write(&fork, 2, 2).await;
    assert_eq!(bench.head(&fork).await, bench.image_with(&[(1, 1), (2, 2)]));
    assert_eq!(bench.head(dir).await, bench.image_with(&[(1, 2)]));
    assert_eq!(bench.snapshot_content(dir, snapshot).await, bench.image_with(&[(1, 1)]));
    assert!(bench.storage.sizes(&fork).await.unwrap().snapshots.is_empty());
}

async fn fork_survives_deletion_of_its_source<B: Lab>(bench: Bench<B>) {
    let (dir, fork, again) = (&bench.dir, bench.lab.directory("fork"), bench.lab.directory("again"));
    bench.create().await;
    bench.write(dir, 1, 1).await;
    let snapshot = bench.snapshot(dir).await;
    bench.storage.fork(dir, snapshot, &fork).await.unwrap();
    bench.write(&fork, 2, 2).await;
    let second = bench.snapshot(&fork).await;
    bench.storage.delete(dir).await.unwrap();
    assert_eq!(bench.storage.names(dir).unwrap(), Vec::<String>::new());
    bench.storage.fork(&fork, second, &again).await.unwrap();
    bench.storage.delete(&fork).await.unwrap();
    assert_eq!(bench.head(&again).await, bench.image_with(&[(1, 1), (2, 2)]));
    bench.merge_all(&again).await;
    assert_eq!(bench.layers(&again), 2, "what was shared is its own now");
    assert_eq!(bench.head(&again).await, bench.image_with(&[(1, 1), (2, 2)]));
}

async fn deleting_snapshots_in_any_order_leaves_one_layer<B: Lab>(bench: Bench<B>) {
    let dir = &bench.dir;
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 0, 3], [2, 0, 3, 1]] {
        bench.create().await;
        let mut snapshots = Vec::new();
        for value in 1..5 {
            bench.write(dir, 1, value).await;
            bench.write(dir, u64::from(value) + 4, value).await;
            snapshots.push((bench.snapshot(dir).await, bench.head(dir).await));
        }
        bench.write(dir, 0, 0).await;
        let head = bench.head(dir).await;
        let mut left = snapshots.clone();
        for index in order {
            let id = snapshots[index].0;
            left.retain(|(other, _)| *other != id);
            bench.storage.forget_snapshot(dir, id).await.unwrap();
            bench.merge_all(dir).await;
            assert_eq!(bench.layers(dir), left.len() + 2, "one for each, the head and the image");
            for (id, content) in &left {
                assert_eq!(bench.snapshot_content(dir, *id).await, *content);
            }
            assert_eq!(bench.head(dir).await, head);
        }
    }
}

async fn layers_shared_with_a_fork_are_not_merged<B: Lab>(bench: Bench<B>) {
    let (dir, fork) = (&bench.dir, bench.lab.directory("fork"));
    bench.create().await;
    bench.write(dir, 1, 1).await;
    let first = bench.snapshot(dir).await;
    bench.write(dir, 1, 2).await;
    let second = bench.snapshot(dir).await;
    bench.write(dir, 1, 3).await;
    bench.storage.fork(dir, second, &fork).await.unwrap();
    bench.storage.forget_snapshot(dir, first).await.unwrap();
    bench.storage.forget_snapshot(dir, second).await.unwrap();
    assert!(bench.storage.redundant(dir).await.unwrap().is_empty());
    assert!(bench.storage.redundant(&fork).await.unwrap().is_empty());
    bench.storage.delete(&fork).await.unwrap();
    bench.merge_all(dir).await;
    assert_eq!(bench.layers(dir), 2);
    assert_eq!(bench.head(dir).await, bench.image_with(&[(1, 3)]));
}

async fn deletion_frees_the_reported_size<B: Lab>(bench: Bench<B>) {
    let dir = &bench.dir;
    // A layer's own tables, which neither side counts.
    let tables = 6 * BLOCK;
    bench.create().await;
    for block in 0..6 {
        bench.write(dir, block, 1).await;
    }
    let below = bench.snapshot(dir).await;
    for block in 0..4 {
        bench.write(dir, block, 2).await;
    }
    let above = bench.snapshot(dir).await;
    let before = bench.storage.sizes(dir).await.unwrap();
    assert_eq!(before.virtual_bytes, VIRTUAL);
    assert!(before.used_bytes >= 10 * BLOCK, "{before:?}");
    let (below_sizes, above_sizes) = (before.snapshots[&below], before.snapshots[&above]);
    assert!(below_sizes.used_bytes >= 4 * BLOCK && below_sizes.used_bytes < 6 * BLOCK, "{before:?}");
    assert_eq!(above_sizes.used_bytes, 0, "the head has nothing of it overwritten: {before:?}");
    assert!(above_sizes.referenced_bytes >= 10 * BLOCK, "{before:?}");
    assert!(above_sizes.referenced_bytes > below_sizes.referenced_bytes, "{before:?}");
    bench.storage.forget_snapshot(dir, below).await.unwrap();
    bench.merge_all(dir).await;
    let after = bench.storage.sizes(dir).await.unwrap();
    let freed = before.used_bytes - after.used_bytes;
    assert!(freed.abs_diff(below_sizes.used_bytes) <= tables, "{before:?} {after:?}");
    // On a branch of its own, deleting a snapshot frees all of it.
    bench.storage.restore(dir, above).await.unwrap();
    bench.write(dir, 7, 7).await;
    let leaf = bench.snapshot(dir).await;
    bench.storage.restore(dir, above).await.unwrap();
    let before = bench.storage.sizes(dir).await.unwrap();
    bench.storage.forget_snapshot(dir, leaf).await.unwrap();
    let after = bench.storage.sizes(dir).await.unwrap();
    assert_eq!(before.used_bytes - after.used_bytes, before.snapshots[&leaf].used_bytes);
    assert!(before.snapshots[&leaf].used_bytes >= BLOCK, "{before:?}");
    // Layers that a fork holds are not freed by deleting here.
    let fork = bench.lab.directory("fork");
    bench.storage.fork(dir, above, &fork).await.unwrap();
    assert_eq!(bench.storage.sizes(dir).await.unwrap().snapshots[&above].used_bytes, 0);
}

async fn snapshot_memory_is_counted_and_removed<B: Lab>(bench: Bench<B>) {
    let dir = &bench.dir;
    bench.create().await;
    let snapshot = bench.snapshot(dir).await;
    let before = bench.storage.sizes(dir).await.unwrap();
    let bytes = bench.lab.add_memory(dir, &format!("memory-{snapshot}"));
    let after = bench.storage.sizes(dir).await.unwrap();
    assert_eq!(after.used_bytes - before.used_bytes, bytes);
    let (before, after) = (before.snapshots[&snapshot], after.snapshots[&snapshot]);
    assert_eq!(after.used_bytes - before.used_bytes, bytes);
    assert_eq!(after.referenced_bytes - before.referenced_bytes, bytes);
    bench.storage.settle(dir, None, &[snapshot]).await.unwrap();
    assert!(bench.storage.names(dir).unwrap().iter().any(|name| name.starts_with("memory-")));
    bench.storage.forget_snapshot(dir, snapshot).await.unwrap();
    assert!(!bench.storage.names(dir).unwrap().iter().any(|name| name.starts_with("memory-")));
}

async fn interrupted_pivot_settles_by_vm_head<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    let id = SnapshotId::random();
    // The VM runs and has not moved.
    let pivot = storage.begin_snapshot(dir, id).await.unwrap();
    bench.lab.write(&pivot.from, 1, 1);
    storage.settle(dir, Some(&pivot.from), &[]).await.unwrap();
    assert_eq!(storage.head(dir).await.unwrap(), pivot.from);
    assert_eq!(bench.layers(dir), 2);
    // The VM runs and has moved.
    let pivot = storage.begin_snapshot(dir, id).await.unwrap();
    bench.lab.write(&pivot.to, 1, 2);
    storage.settle(dir, Some(&pivot.to), &[id]).await.unwrap();
    assert_eq!(bench.snapshot_content(dir, id).await, bench.image_with(&[(1, 1)]));
    assert_eq!(bench.head(dir).await, bench.image_with(&[(1, 2)]));
    // The VM is down, and the snapshot is unknown.
    let other = SnapshotId::random();
    let pivot = storage.begin_snapshot(dir, other).await.unwrap();
    storage.settle(dir, None, &[id]).await.unwrap();
    assert_eq!(storage.head(dir).await.unwrap(), pivot.to);
    assert!(matches!(storage.restore(dir, other).await, Err(DiskError::NoSnapshot { .. })));
    bench.merge_all(dir).await;
    assert_eq!(bench.layers(dir), 3);
    assert_eq!(bench.head(dir).await, bench.image_with(&[(1, 2)]));
    // The VM runs on another file.
    let error = storage.settle(dir, Some(&dir.join("other.qcow2")), &[id]).await.unwrap_err();
    assert!(matches!(error, DiskError::OtherHead { .. }), "{error}");
}

async fn settle_removes_only_own_unknown_files<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    bench.write(dir, 1, 1).await;
    let known = bench.snapshot(dir).await;
    let unknown = bench.snapshot(dir).await;
    storage.restore(dir, known).await.unwrap();
    bench.lab.add_memory(dir, &format!("memory-{unknown}"));
    bench.lab.add_memory(dir, &format!("memory-{}", SnapshotId::random()));
    let kept = ["console.log", "backup.qcow2", ".hidden", "memory-of-a-summer"];
    let half_made = format!(".memory-{known}");
    let debris = ["0123456789abcdef.qcow2", ".0123456789abcdef.qcow2.new", ".volume.json.0a1b", &half_made];
    for name in kept.iter().chain(&debris) {
        bench.lab.add_memory(dir, name);
    }
    storage.settle(dir, None, &[known]).await.unwrap();
    let names = storage.names(dir).unwrap();
    assert!(kept.iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    let head = storage.head(dir).await.unwrap();
    let head = head.file_name().unwrap().to_str().unwrap();
    let own = [VOLUME_FILE, "layer0.qcow2", "disk.qcow2", head];
    assert_eq!(names.len(), kept.len() + own.len(), "{names:?}");
    assert!(own.iter().all(|name| names.contains(&(*name).to_owned())), "{names:?}");
    assert_eq!(bench.snapshot_content(dir, known).await, bench.image_with(&[(1, 1)]));
}

async fn volume_with_missing_layer_is_left_alone<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    let first = bench.create().await;
    let snapshot = bench.snapshot(dir).await;
    bench.snapshot(dir).await;
    storage.remove(dir, first.file_name().unwrap().to_str().unwrap()).unwrap();
    let names = storage.names(dir).unwrap();
    let error = storage.settle(dir, None, &[]).await.unwrap_err();
    assert!(matches!(&error, DiskError::NoLayer(path) if *path == first), "{error}");
    assert!(storage.forget_snapshot(dir, snapshot).await.is_err());
    assert_eq!(storage.names(dir).unwrap(), names);
    storage.delete(dir).await.unwrap();
    assert_eq!(storage.names(dir).unwrap(), Vec::<String>::new());
}

/// Does what QEMU does in a block commit: data first, then the one layer above it in its own chain.
fn commit_as_a_vm<B: Lab>(bench: &Bench<B>, merge: &agentiso_disk::Merge) {
    let name =
        |path: &Path| serde_json::from_value(path.file_name().unwrap().to_str().unwrap().into()).unwrap();
    bench.storage.commit(&bench.dir, &name(&merge.child), &name(&merge.into)).unwrap();
    for above in merge.above.iter().take(1) {
        bench.storage.rebase(&bench.dir, &name(above), &name(&merge.into)).unwrap();
    }
}

async fn online_merge_updates_the_record<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    bench.write(dir, 1, 1).await;
    let first = bench.snapshot(dir).await;
    bench.write(dir, 1, 2).await;
    let second = bench.snapshot(dir).await;
    bench.write(dir, 2, 3).await;
    storage.forget_snapshot(dir, first).await.unwrap();
    let merges = storage.redundant(dir).await.unwrap();
    assert_eq!(merges.len(), 1, "{merges:?}");
    assert!(merges[0].under_head && !merges[0].child_is_head, "{merges:?}");
    assert_eq!(merges[0].above, [storage.head(dir).await.unwrap()]);
    storage.begin_merge(dir, &merges[0]).await.unwrap();
    commit_as_a_vm(&bench, &merges[0]);
    storage.merged_online(dir, &merges[0]).await.unwrap();
    storage.merged_online(dir, &merges[0]).await.unwrap();
    assert_eq!(bench.snapshot_content(dir, second).await, bench.image_with(&[(1, 2)]));
    assert_eq!(bench.head(dir).await, bench.image_with(&[(1, 2), (2, 3)]));
    assert_eq!(bench.layers(dir), 3);
    // The VM merges the last one itself, and writes to the lower layer from then on.
    storage.forget_snapshot(dir, second).await.unwrap();
    let merges = storage.redundant(dir).await.unwrap();
    assert!(merges[0].child_is_head && merges[0].above.is_empty(), "{merges:?}");
    storage.begin_merge(dir, &merges[0]).await.unwrap();
    commit_as_a_vm(&bench, &merges[0]);
    storage.settle(dir, Some(&merges[0].into), &[]).await.unwrap();
    assert_eq!(storage.head(dir).await.unwrap(), merges[0].into);
    assert_eq!(bench.head(dir).await, bench.image_with(&[(1, 2), (2, 3)]));
    assert_eq!(bench.layers(dir), 2);
}

async fn settle_finishes_a_partly_rebased_merge<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    bench.write(dir, 1, 1).await;
    let first = bench.snapshot(dir).await;
    bench.write(dir, 1, 2).await;
    let second = bench.snapshot(dir).await;
    bench.write(dir, 2, 3).await;
    let third = bench.snapshot(dir).await;
    storage.restore(dir, second).await.unwrap();
    storage.forget_snapshot(dir, first).await.unwrap();
    let merge = storage.redundant(dir).await.unwrap().remove(0);
    assert_eq!(merge.above.len(), 2);
    storage.begin_merge(dir, &merge).await.unwrap();
    commit_as_a_vm(&bench, &merge);
    // One layer is on the lower layer, the other and the snapshot still on the upper one.
    storage.settle(dir, None, &[second, third]).await.unwrap();
    assert!(storage.redundant(dir).await.unwrap().is_empty());
    assert_eq!(bench.layers(dir), 4);
    assert_eq!(bench.snapshot_content(dir, second).await, bench.image_with(&[(1, 2)]));
    assert_eq!(bench.snapshot_content(dir, third).await, bench.image_with(&[(1, 2), (2, 3)]));
    assert_eq!(bench.head(dir).await, bench.image_with(&[(1, 2)]));
    let again = storage.merge_offline(dir, &merge).await;
    again.unwrap();
}

async fn unreadable_record_allows_only_deletion<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    storage.store(dir, "{\"schema\": 7}").unwrap();
    let error = storage.head(dir).await.unwrap_err();
    assert!(error.to_string().contains(VOLUME_FILE), "{error}");
    assert!(storage.settle(dir, None, &[]).await.is_err());
    storage.delete(dir).await.unwrap();
    assert_eq!(storage.names(dir).unwrap(), Vec::<String>::new());
}

async fn lost_record_removes_no_layer<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    let all = snapshots(&bench, 2).await;
    let known: Vec<_> = all.iter().map(|(id, _)| *id).collect();
    let record = storage.load(dir).unwrap().unwrap();
    storage.remove(dir, VOLUME_FILE).unwrap();
    let names = bench.names();
    for known in [&known[..], &[]] {
        let error = storage.settle(dir, None, known).await.unwrap_err();
        assert!(matches!(&error, DiskError::RecordLost { layers: 2, .. }), "{error}");
    }
    assert!(storage.restore(dir, known[0]).await.is_err());
    assert!(storage.forget_snapshot(dir, known[0]).await.is_err());
    assert!(storage.head(dir).await.is_err());
    assert_eq!(bench.names(), names);
    // Nothing is lost once the record is back.
    storage.store(dir, &record).unwrap();
    storage.settle(dir, None, &known).await.unwrap();
    for (id, content) in &all {
        assert_eq!(bench.snapshot_content(dir, *id).await, *content);
    }
}

async fn outdated_record_removes_no_layer<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    let mut all = snapshots(&bench, 1).await;
    let older = storage.load(dir).unwrap().unwrap();
    all.extend(snapshots(&bench, 2).await);
    let known: Vec<_> = all.iter().map(|(id, _)| *id).collect();
    bench.lab.add_memory(dir, &format!("memory-{}", known[2]));
    let (last, names) = (storage.load(dir).unwrap().unwrap(), bench.names());
    storage.store(dir, &older).unwrap();
    let error = storage.settle(dir, None, &known).await.unwrap_err();
    assert!(matches!(&error, DiskError::RecordBehind { layers: 2, .. }), "{error}");
    assert_eq!((storage.load(dir).unwrap().unwrap(), bench.names()), (older, names));
    storage.store(dir, &last).unwrap();
    storage.settle(dir, None, &known).await.unwrap();
    for (id, content) in &all {
        assert_eq!(bench.snapshot_content(dir, *id).await, *content);
    }
}

async fn missing_known_snapshot_blocks_removal<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    let all = snapshots(&bench, 2).await;
    bench.lab.add_memory(dir, &format!("memory-{}", all[1].0));
    let names = bench.names();
    // The ledger has a wrong id in place of the second.
    storage.settle(dir, None, &[all[0].0, SnapshotId::random()]).await.unwrap();
    assert_eq!(bench.names(), names);
    for (id, content) in &all {
        assert_eq!(bench.snapshot_content(dir, *id).await, *content);
    }
}

async fn changed_record_bytes_are_refused<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    let known = bench.snapshot(dir).await;
    storage.settle(dir, None, &[known]).await.unwrap();
    let (record, names) = (storage.load(dir).unwrap().unwrap(), bench.names());
    // The digits of the checksum, its name and the brace after them are not part of the content.
    let said = record.rfind(",\n").unwrap();
    for (at, byte) in record.bytes().enumerate().take(said) {
        for other in [b'0', b'7', b'a', b'f'].into_iter().filter(|other| *other != byte) {
            let mut changed = record.clone().into_bytes();
            changed[at] = other;
            storage.store(dir, std::str::from_utf8(&changed).unwrap()).unwrap();
            let error = storage.settle(dir, None, &[known]).await.unwrap_err();
            assert!(matches!(error, DiskError::Record { .. }), "{at} {other}: {error}");
        }
    }
    assert_eq!(bench.names(), names);
    // A record without a checksum, from an earlier version, is read.
    storage.store(dir, &format!("{}\n}}", &record[..said])).unwrap();
    storage.settle(dir, None, &[known]).await.unwrap();
    assert_eq!(storage.load(dir).unwrap().unwrap(), record, "it gets one");
}

/// Makes snapshots with a common block and one of their own.
async fn snapshots<B: Lab>(bench: &Bench<B>, count: u8) -> Vec<(SnapshotId, Content)> {
    let mut made = Vec::new();
    for value in 1..=count {
        bench.write(&bench.dir, 1, value).await;
        bench.write(&bench.dir, u64::from(value) % 12, value).await;
        made.push((bench.snapshot(&bench.dir).await, bench.head(&bench.dir).await));
    }
    made
}

async fn keyframe_shortens_chain_and_keeps_content<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    let made = snapshots(&bench, 5).await;
    bench.write(dir, 2, 0).await;
    let head = bench.head(dir).await;
    assert_eq!(
        storage.keyframe(dir, KeyframeDue::after(6), &CancellationToken::new()).await.unwrap(),
        None,
        "it is not long enough"
    );
    let keyframe =
        storage.keyframe(dir, KeyframeDue::after(5), &CancellationToken::new()).await.unwrap().unwrap();
    assert_eq!(keyframe.replaces.len(), 5);
    assert!(keyframe.head_is_above && keyframe.above == [storage.head(dir).await.unwrap()], "{keyframe:?}");
    assert_eq!(
        storage.keyframe(dir, KeyframeDue::after(5), &CancellationToken::new()).await.unwrap().as_ref(),
        Some(&keyframe),
        "it waits to be adopted"
    );
    assert_eq!(storage.chain(dir, None).await.unwrap().len(), 7);
    storage.adopt_keyframe(dir, &keyframe).await.unwrap();
    storage.adopt_keyframe(dir, &keyframe).await.unwrap();
    assert_eq!(storage.chain(dir, None).await.unwrap().len(), 3);
    assert_eq!(
        storage.keyframe(dir, KeyframeDue::after(2), &CancellationToken::new()).await.unwrap(),
        None,
        "there is a keyframe"
    );
    for (id, content) in &made {
        assert_eq!(bench.snapshot_content(dir, *id).await, *content);
    }
    assert_eq!(bench.head(dir).await, head);
    assert_eq!(bench.layers(dir), 7, "the topmost has given way to the keyframe");
    // A fork of the replaced snapshot knows the keyframe.
    let fork = bench.lab.directory("fork");
    storage.fork(dir, made[4].0, &fork).await.unwrap();
    assert_eq!(bench.head(&fork).await, made[4].1);
    assert_eq!(
        storage.keyframe(&fork, KeyframeDue::after(2), &CancellationToken::new()).await.unwrap(),
        None
    );
    storage.delete(&fork).await.unwrap();
    for (id, _) in made {
        storage.forget_snapshot(dir, id).await.unwrap();
    }
    bench.merge_all(dir).await;
    assert_eq!(bench.layers(dir), 2);
    assert_eq!(bench.head(dir).await, head);
}

async fn large_layers_stay_below_the_keyframe<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    for block in 0..10 {
        bench.write(dir, block, 7).await;
    }
    let large = bench.snapshot(dir).await;
    let content = bench.head(dir).await;
    let made = snapshots(&bench, 4).await;
    let head = bench.head(dir).await;
    let all = storage.sizes(dir).await.unwrap().snapshots[&made[3].0].referenced_bytes;
    let due = |layers| KeyframeDue { layers, most_bytes: all - 1 };
    let never = CancellationToken::new();
    let keyframe = |layers| storage.keyframe(dir, due(layers), &never);
    assert_eq!(keyframe(5).await.unwrap(), None, "four are small");
    let keyframe = keyframe(4).await.unwrap().unwrap();
    assert_eq!(keyframe.replaces.len(), 4);
    storage.adopt_keyframe(dir, &keyframe).await.unwrap();
    assert_eq!(storage.chain(dir, None).await.unwrap().len(), 4, "image, large, keyframe, head");
    assert_eq!(bench.snapshot_content(dir, large).await, content);
    for (id, content) in &made {
        assert_eq!(bench.snapshot_content(dir, *id).await, *content);
    }
    assert_eq!(bench.head(dir).await, head);
}

async fn keyframe_adoption_spares_running_and_shared_layers<B: Lab>(bench: Bench<B>) {
    let (storage, dir) = (&bench.storage, &bench.dir);
    bench.create().await;
    let made = snapshots(&bench, 3).await;
    let known: Vec<SnapshotId> = made.iter().map(|(id, _)| *id).collect();
    let head = storage.head(dir).await.unwrap();
    let layers = bench.layers(dir);
    // The VM runs, and its head is on the replaced layers.
    storage.keyframe(dir, KeyframeDue::after(2), &CancellationToken::new()).await.unwrap().unwrap();
    storage.settle(dir, Some(&head), &known).await.unwrap();
    assert_eq!((bench.layers(dir), storage.chain(dir, None).await.unwrap().len()), (layers, 5));
    // After another snapshot, the head no longer is.
    storage.keyframe(dir, KeyframeDue::after(2), &CancellationToken::new()).await.unwrap().unwrap();
    let last = bench.snapshot(dir).await;
    let head = storage.head(dir).await.unwrap();
    let keyframe =
        storage.keyframe(dir, KeyframeDue::after(2), &CancellationToken::new()).await.unwrap().unwrap();
    assert!(!keyframe.head_is_above, "{keyframe:?}");
    let all: Vec<SnapshotId> = known.iter().copied().chain([last]).collect();
    storage.settle(dir, Some(&head), &all).await.unwrap();
    assert_eq!(storage.chain(dir, None).await.unwrap().len(), 4);
    for (id, content) in &made {
        assert_eq!(bench.snapshot_content(dir, *id).await, *content);
    }
    // After a fork, the layers above do not belong to this volume alone.
    let keyframe = storage.keyframe(dir, KeyframeDue::after(2), &CancellationToken::new()).await.unwrap();
    assert_eq!(keyframe, None);
    bench.snapshot(dir).await;
    storage.keyframe(dir, KeyframeDue::after(2), &CancellationToken::new()).await.unwrap().unwrap();
    let above = bench.snapshot(dir).await;
    let fork = bench.lab.directory("fork");
    storage.fork(dir, above, &fork).await.unwrap();
    let (here, there) = (bench.head(dir).await, bench.head(&fork).await);
    let keyframe =
        storage.keyframe(dir, KeyframeDue::after(2), &CancellationToken::new()).await.unwrap().unwrap();
    storage.adopt_keyframe(dir, &keyframe).await.unwrap();
    assert_eq!((bench.head(dir).await, bench.head(&fork).await), (here, there));
    let error = storage.adopt_keyframe(dir, &keyframe).await.unwrap_err();
    assert!(matches!(error, DiskError::NoKeyframe(_)), "{error}");
}
