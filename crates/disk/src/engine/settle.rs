//! Restores order in a volume after a crash.

use std::path::Path;

use agentiso_core::ids::SnapshotId;

use super::{OpenVolume, is_half_made, keyframe, memory_of, merge};
use crate::error::DiskError;
use crate::layer_name::LayerName;
use crate::layers::Layers;
use crate::volume::VOLUME_FILE;

pub(super) fn settle(
    layers: &impl Layers,
    dir: &Path,
    running_head: Option<&Path>,
    known: &[SnapshotId],
) -> Result<(), DiskError> {
    layers.hold(dir)?;
    let mut open = OpenVolume::at(layers, dir)?;
    let (before, stored) = (open.volume.clone(), layers.load(dir)?);
    settle_pivot(&mut open, running_head);
    let is_complete = is_complete(&open, known)?;
    settle_merge(&mut open, running_head)?;
    keyframe::settle(&mut open, running_head.is_some())?;
    if let Some(running) = running_head
        && LayerName::of(running).as_ref() != Some(&open.volume.head)
    {
        let head = open.volume.head.in_dir(dir);
        return Err(DiskError::OtherHead { running: running.to_owned(), head });
    }
    if is_complete {
        open.volume.snapshots.retain(|snapshot, _| known.contains(snapshot));
    }
    open.volume.unconfirmed.clear();
    // Nothing is written or removed before all layers are known to exist.
    open.graph()?;
    // A record of an older version is rewritten, so that it also holds the fields that were added since.
    let older = stored.is_some_and(|text| text != open.volume.to_text());
    if older || open.volume != before {
        open.save()?;
    }
    if !is_complete {
        return layers.sync(dir);
    }
    open.collect()?;
    for name in layers.names(dir)? {
        let unknown_memory = memory_of(&name).is_some_and(|snapshot| !known.contains(&snapshot));
        if unknown_memory || is_half_made(&name) {
            layers.remove(dir, &name)?;
        }
    }
    layers.sync(dir)
}

/// Whether the record has every snapshot of the ledger. A snapshot is added to the record before the ledger, and
/// removed from the ledger before the record. So if the record lacks one, the record is outdated or damaged, or the
/// ledger is. Then an unnamed layer may be that snapshot, and the recorded head may be below other layers, so the
/// record is refused. If no layer is unnamed, the volume can be used, and nothing is removed.
fn is_complete<L: Layers>(open: &OpenVolume<'_, L>, known: &[SnapshotId]) -> Result<bool, DiskError> {
    let is_missing = |snapshot: &&SnapshotId| !open.volume.snapshots.contains_key(*snapshot);
    let Some(snapshot) = known.iter().find(is_missing) else { return Ok(true) };
    let unnamed = open.unneeded()?.len();
    if unnamed > 0 {
        let path = open.dir.join(VOLUME_FILE);
        return Err(DiskError::RecordBehind { path, snapshot: *snapshot, layers: unnamed });
    }
    tracing::error!(directory = %open.dir.display(), %snapshot, "a snapshot of the ledger is not on the disk; no layers are removed");
    Ok(false)
}

/// With the VM down, the upper layer is the right head even if the VM had not moved to it: an empty layer reads as the
/// one below it. With the VM running, its head decides.
fn settle_pivot<L: Layers>(open: &mut OpenVolume<'_, L>, running_head: Option<&Path>) {
    let Some(pivot) = open.volume.pivot.take() else { return };
    let stayed = running_head.is_some_and(|running| LayerName::of(running).as_ref() == Some(&pivot.from));
    if !stayed {
        open.volume.snapshots.insert(pivot.snapshot, pivot.from);
        open.volume.head = pivot.to;
    }
}

/// Finishes a merge that has only backing names left to change. Any other is offered again by `redundant`.
fn settle_merge<L: Layers>(
    open: &mut OpenVolume<'_, L>,
    running_head: Option<&Path>,
) -> Result<(), DiskError> {
    let Some(note) = open.volume.merging.clone() else { return Ok(()) };
    let Some(begun) = open.graph()?.begun(&open.volume) else {
        open.volume.merging = None;
        return Ok(());
    };
    let moved = running_head.is_some_and(|running| LayerName::of(running).as_ref() == Some(&note.into));
    if begun.copied || (moved && open.volume.head == note.child) {
        return merge::finish(open, &note);
    }
    Ok(())
}
