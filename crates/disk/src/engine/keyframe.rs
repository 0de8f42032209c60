//! Makes and adopts keyframes, which replace many layers by one.
//!
//! ```text
//! below ◀── a ◀── b ◀── … ◀── top ◀── head
//! below ◀── keyframe ◀── head                    a, b, … stay as long as they are snapshots
//! ```
//!
//! The keyframe reads as `top` does and neither ever changes, so each can stand in for the other as a backing.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::OpenVolume;
use crate::error::DiskError;
use crate::layer_name::LayerName;
use crate::layers::Layers;
use crate::storage::{Keyframe, KeyframeDue};
use crate::volume::KeyframeNote;

pub(super) fn make(
    layers: &impl Layers,
    dir: &Path,
    due: KeyframeDue,
    stop: &CancellationToken,
) -> Result<Option<Keyframe>, DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    if open.volume.flattening.is_none() {
        if !is_long(&open, due.layers.max(2))? {
            return Ok(None);
        }
        let graph = open.graph()?;
        // A layer that is being merged changes while it is read.
        let mut merges = graph.redundant(&open.volume).into_iter();
        let merging = merges.any(|found| Some(found.note) == open.volume.merging);
        if merging || open.volume.pivot.is_some() {
            return Ok(None);
        }
        let run = graph.long_run(&open.volume, due);
        let Some(top) = run.first() else { return Ok(None) };
        let note = KeyframeNote { file: LayerName::unique(), top: top.clone() };
        match layers.combine(dir, &note.file, &run, stop) {
            Err(_) if stop.is_cancelled() => return Ok(None),
            combined => combined?,
        }
        let (mut changed, made) = (open.volume.clone(), note.file.clone());
        // A copy of inherited data is not charged either, because the client did not ask for the keyframe.
        let inherited = run.iter().map(|layer| changed.inherited_bytes(layer)).sum();
        changed.inherit(made.clone(), inherited);
        changed.flattening = Some(note);
        changed.keyframes.retain(|layer| graph.layers.contains_key(layer));
        open.save_with(changed, &made)?;
    }
    describe(&open)
}

/// Whether this many layers are below the head. This runs after every snapshot, so it inspects only those layers.
fn is_long<L: Layers>(open: &OpenVolume<'_, L>, layers: usize) -> Result<bool, DiskError> {
    let mut below = open.volume.head.clone();
    for _ in 0..layers {
        let info = open.layers.inspect(open.dir, &below)?;
        match info.and_then(|info| info.backing) {
            Some(next) if next.is_own() && !open.volume.keyframes.contains(&next) => below = next,
            Some(_) | None => return Ok(false),
        }
    }
    Ok(true)
}

/// The finished keyframe that is not adopted yet.
fn describe<L: Layers>(open: &OpenVolume<'_, L>) -> Result<Option<Keyframe>, DiskError> {
    let Some(note) = &open.volume.flattening else { return Ok(None) };
    let graph = open.graph()?;
    let above = graph.above(&graph.needed(&open.volume), &note.top);
    let below = graph.layers.get(&note.file).and_then(|info| info.backing.clone());
    let replaces = graph.chain(&note.top).take_while(|layer| Some(*layer) != below.as_ref());
    Ok(Some(Keyframe {
        file: note.file.in_dir(open.dir),
        replaces: replaces.map(|layer| layer.in_dir(open.dir)).collect(),
        below: below.as_ref().map(|layer| layer.in_dir(open.dir)),
        head_is_above: above.contains(&open.volume.head),
        above: above.iter().map(|layer| layer.in_dir(open.dir)).collect(),
    }))
}

pub(super) fn adopt(layers: &impl Layers, dir: &Path, file: &Path) -> Result<(), DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    match &open.volume.flattening {
        Some(note) if LayerName::of(file).as_ref() == Some(&note.file) => {}
        None if LayerName::of(file).is_some_and(|file| open.volume.keyframes.contains(&file)) => {
            return Ok(());
        }
        Some(_) | None => return Err(DiskError::NoKeyframe(file.to_owned())),
    }
    replace_layers(&mut open)?;
    open.save()?;
    open.collect()
}

/// Adopts a finished keyframe, unless the head of a running VM is on the replaced layers: the backing of a running
/// head is not changed under it.
pub(super) fn settle<L: Layers>(open: &mut OpenVolume<'_, L>, running: bool) -> Result<(), DiskError> {
    let Some(keyframe) = describe(open)? else { return Ok(()) };
    match running && keyframe.head_is_above {
        true => {
            open.volume.flattening = None;
            Ok(())
        }
        false => replace_layers(open),
    }
}

/// Changes the backing of every layer on the topmost replaced layer to the keyframe. The record changes only in
/// memory.
fn replace_layers<L: Layers>(open: &mut OpenVolume<'_, L>) -> Result<(), DiskError> {
    let graph = open.graph()?;
    let Some(note) = open.volume.flattening.clone() else { return Ok(()) };
    let above = graph.above(&graph.needed(&open.volume), &note.top);
    // If one of these layers was forked meanwhile, it is not ours alone to change, and the keyframe is dropped.
    let shared = |layer: &LayerName| graph.layers.get(layer).is_some_and(|info| info.shared);
    open.volume.flattening = None;
    if above.iter().any(shared) {
        return Ok(());
    }
    for layer in above {
        open.layers.rebase(open.dir, &layer, &note.file)?;
    }
    open.volume.move_marks(&note.top, &note.file);
    open.volume.keyframes.insert(note.file);
    Ok(())
}
