//! Takes, restores, deletes and lists the snapshots of a volume.

use std::path::{Path, PathBuf};

use agentiso_core::ids::SnapshotId;
use agentiso_vm::DiskSnapshot;

use super::{OpenVolume, memory_name};
use crate::error::DiskError;
use crate::layer_name::LayerName;
use crate::layers::Layers;
use crate::storage::Pivot;
use crate::volume::PivotNote;

pub(super) fn begin(layers: &impl Layers, dir: &Path, snapshot: SnapshotId) -> Result<Pivot, DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    if let Some(pivot) = &open.volume.pivot {
        return Err(DiskError::Pivoting { directory: dir.to_owned(), snapshot: pivot.snapshot });
    }
    if open.volume.snapshots.contains_key(&snapshot) {
        return Err(DiskError::SnapshotExists { directory: dir.to_owned(), snapshot });
    }
    let (from, to) = (open.volume.head.clone(), LayerName::unique());
    let pivot = Pivot { from: from.in_dir(dir), to: to.in_dir(dir) };
    layers.create(dir, &to, &from, open.volume.virtual_bytes)?;
    let mut changed = open.volume.clone();
    changed.pivot = Some(PivotNote { snapshot, from, to: to.clone() });
    changed.unconfirmed.insert(snapshot);
    open.save_with(changed, &to)?;
    Ok(pivot)
}

pub(super) fn finish(layers: &impl Layers, dir: &Path, snapshot: SnapshotId) -> Result<(), DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    match open.volume.pivot.take() {
        Some(pivot) if pivot.snapshot == snapshot => {
            open.volume.snapshots.insert(snapshot, pivot.from);
            open.volume.head = pivot.to;
            open.save()
        }
        None if open.volume.snapshots.contains_key(&snapshot) => Ok(()),
        Some(_) | None => Err(DiskError::NotPivoting { directory: dir.to_owned(), snapshot }),
    }
}

pub(super) fn abandon(layers: &impl Layers, dir: &Path, snapshot: SnapshotId) -> Result<(), DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    match open.volume.pivot.take() {
        Some(pivot) if pivot.snapshot == snapshot => {
            open.volume.unconfirmed.remove(&snapshot);
            open.save()?;
            layers.remove(dir, pivot.to.as_str())?;
            layers.remove(dir, &memory_name(snapshot))
        }
        None if !open.volume.snapshots.contains_key(&snapshot) => Ok(()),
        Some(_) | None => Err(DiskError::NotPivoting { directory: dir.to_owned(), snapshot }),
    }
}

pub(super) fn restore(layers: &impl Layers, dir: &Path, snapshot: SnapshotId) -> Result<PathBuf, DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    let below = open.snapshot(snapshot)?.clone();
    let to = LayerName::unique();
    layers.create(dir, &to, &below, open.volume.virtual_bytes)?;
    let mut changed = open.volume.clone();
    changed.head = to.clone();
    // With the VM down, a begun snapshot counts as taken; `settle` drops it if the ledger does not know it.
    if let Some(pivot) = changed.pivot.take() {
        changed.snapshots.insert(pivot.snapshot, pivot.from);
    }
    open.save_with(changed, &to)?;
    if let Err(error) = open.collect() {
        tracing::warn!(%error, directory = %dir.display(), "could not remove the layers of the abandoned state");
    }
    Ok(to.in_dir(dir))
}

pub(super) fn forget(layers: &impl Layers, dir: &Path, snapshot: SnapshotId) -> Result<(), DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    if open.volume.snapshots.remove(&snapshot).is_some() {
        open.volume.unconfirmed.remove(&snapshot);
        open.save()?;
    }
    open.collect()?;
    layers.remove(dir, &memory_name(snapshot))
}

/// The layers from a snapshot, or the head, down to the image.
pub(super) fn chain(
    layers: &impl Layers,
    dir: &Path,
    of: Option<SnapshotId>,
) -> Result<Vec<PathBuf>, DiskError> {
    let open = OpenVolume::at(layers, dir)?;
    let graph = open.graph()?;
    let top = match of {
        Some(snapshot) => open.snapshot(snapshot)?,
        None => &open.volume.head,
    };
    Ok(graph.chain(top).map(|layer| layer.in_dir(dir)).collect())
}

/// The nearest snapshot below the head.
pub(crate) fn origin(layers: &impl Layers, dir: &Path) -> Result<Option<SnapshotId>, DiskError> {
    let open = OpenVolume::at(layers, dir)?;
    let graph = open.graph()?;
    let snapshot_of = |layer: &LayerName| {
        open.volume.snapshots.iter().find(|(_, top)| *top == layer).map(|(snapshot, _)| *snapshot)
    };
    Ok(graph.chain(&open.volume.head).find_map(snapshot_of))
}

/// The snapshots in the volume's record, parents first.
pub(crate) fn listed(layers: &impl Layers, dir: &Path) -> Result<Vec<DiskSnapshot>, DiskError> {
    let open = OpenVolume::at(layers, dir)?;
    let (graph, names) = (open.graph()?, layers.names(dir)?);
    let snapshots = &open.volume.snapshots;
    let snapshot_of =
        |layer: &LayerName| snapshots.iter().find(|(_, top)| *top == layer).map(|(snapshot, _)| *snapshot);
    let mut listed: Vec<(usize, DiskSnapshot)> = snapshots
        .iter()
        .map(|(id, top)| {
            let snapshot = DiskSnapshot {
                id: *id,
                parent: graph.chain(top).skip(1).find_map(snapshot_of),
                has_memory: names.contains(&memory_name(*id)),
                unconfirmed: open.volume.unconfirmed.contains(id),
            };
            (graph.chain(top).count(), snapshot)
        })
        .collect();
    listed.sort_by_key(|(depth, snapshot)| (*depth, snapshot.id));
    Ok(listed.into_iter().map(|(_, snapshot)| snapshot).collect())
}

pub(super) fn head(layers: &impl Layers, dir: &Path) -> Result<PathBuf, DiskError> {
    let open = OpenVolume::at(layers, dir)?;
    let head = &open.volume.head;
    match layers.inspect(dir, head)? {
        Some(_) => Ok(head.in_dir(dir)),
        None => Err(DiskError::NoLayer(head.in_dir(dir))),
    }
}
