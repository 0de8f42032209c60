//! Merges two layers into one.
//!
//! ```text
//! into ◀── child ◀── above        child's data is written into `into`
//! into ◀── above                  the layers above get `into` as their backing, then the record changes
//! into ◀── above                  child is removed
//! ```
//!
//! Read from above, the content never changes, so nothing has to be undone after a crash. The note in the record names
//! the merge to continue.

use std::path::Path;

use super::OpenVolume;
use crate::error::DiskError;
use crate::graph::Redundant;
use crate::layer_name::LayerName;
use crate::layers::Layers;
use crate::storage::Merge;
use crate::volume::MergeNote;

pub(super) fn redundant(layers: &impl Layers, dir: &Path) -> Result<Vec<Merge>, DiskError> {
    let open = OpenVolume::at(layers, dir)?;
    let graph = open.graph()?;
    let head = &open.volume.head;
    let running = layers.is_open(dir, head)?;
    let mut merges = Vec::new();
    for found in graph.redundant(&open.volume) {
        let mut under_head = graph.chain(head).any(|layer| *layer == found.note.child);
        if running {
            match under_running(&open, &found, under_head)? {
                Some(under) => under_head = under,
                None => continue,
            }
        }
        merges.push(Merge {
            child: found.note.child.in_dir(dir),
            into: found.note.into.in_dir(dir),
            above: found.above.iter().map(|layer| layer.in_dir(dir)).collect(),
            child_is_head: found.note.child == *head,
            under_head,
        });
    }
    Ok(merges)
}

/// Whether a running VM has to do a merge itself; `None` if it must be down. The layers that it has open can differ
/// from its chain, because it keeps reading layers that a keyframe has replaced since it was started.
fn under_running<L: Layers>(
    open: &OpenVolume<'_, L>,
    found: &Redundant,
    under_head: bool,
) -> Result<Option<bool>, DiskError> {
    let MergeNote { child, into } = &found.note;
    let head = &open.volume.head;
    if open.layers.is_open(open.dir, into)? {
        return Ok((under_head && open.layers.is_open(open.dir, child)?).then_some(true));
    }
    Ok((child != head && !found.above.contains(head)).then_some(false))
}

pub(super) fn begin(layers: &impl Layers, dir: &Path, merge: &Merge) -> Result<(), DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    match find(&open, merge)? {
        Some(found) => note(&mut open, found.note),
        None => Err(DiskError::NotRedundant(merge.child.clone())),
    }
}

pub(super) fn offline(layers: &impl Layers, dir: &Path, merge: &Merge) -> Result<(), DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    let Some(found) = find(&open, merge)? else { return done_before(&open, merge) };
    note(&mut open, found.note.clone())?;
    if !found.copied {
        layers.commit(dir, &found.note.child, &found.note.into)?;
    }
    finish(&mut open, &found.note)
}

pub(super) fn online(layers: &impl Layers, dir: &Path, merge: &Merge) -> Result<(), DiskError> {
    let mut open = OpenVolume::at(layers, dir)?;
    match noted(&open, merge) {
        Some(note) => finish(&mut open, &note),
        None => done_before(&open, merge),
    }
}

/// Finishes a merge whose data is already copied.
pub(super) fn finish<L: Layers>(open: &mut OpenVolume<'_, L>, note: &MergeNote) -> Result<(), DiskError> {
    let graph = open.graph()?;
    for layer in graph.above(&graph.needed(&open.volume), &note.child) {
        open.layers.rebase(open.dir, &layer, &note.into)?;
    }
    open.volume.move_marks(&note.child, &note.into);
    take_over_inheritance(open, note)?;
    open.volume.merging = None;
    open.save()?;
    open.layers.remove(open.dir, note.child.as_str())
}

/// The merged layer inherits as much as both did, but never more than its size.
fn take_over_inheritance<L: Layers>(open: &mut OpenVolume<'_, L>, note: &MergeNote) -> Result<(), DiskError> {
    let both = open.volume.inherited_bytes(&note.child) + open.volume.inherited_bytes(&note.into);
    if both > 0 {
        let there = open.layers.inspect(open.dir, &note.into)?.map_or(0, |info| info.used_bytes);
        open.volume.inherit(note.into.clone(), both.min(there));
        open.volume.inherit(note.child.clone(), 0);
    }
    Ok(())
}

fn note<L: Layers>(open: &mut OpenVolume<'_, L>, note: MergeNote) -> Result<(), DiskError> {
    if open.volume.merging.as_ref() == Some(&note) {
        return Ok(());
    }
    open.volume.merging = Some(note);
    open.save()
}

fn find<L: Layers>(open: &OpenVolume<'_, L>, merge: &Merge) -> Result<Option<Redundant>, DiskError> {
    if let Some(pivot) = &open.volume.pivot {
        return Err(DiskError::Pivoting { directory: open.dir.to_owned(), snapshot: pivot.snapshot });
    }
    let (child, into) = (LayerName::of(&merge.child), LayerName::of(&merge.into));
    let mut all = open.graph()?.redundant(&open.volume).into_iter();
    // The record holds one note. The note of a merge whose backing names are being changed must not be overwritten.
    let first = all.next();
    let rest = all.filter(|_| first.as_ref().is_some_and(|first| !first.copied));
    let wanted = |found: &Redundant| {
        Some(&found.note.child) == child.as_ref() && Some(&found.note.into) == into.as_ref()
    };
    Ok(first.clone().into_iter().chain(rest).find(wanted))
}

fn noted<L>(open: &OpenVolume<'_, L>, merge: &Merge) -> Option<MergeNote> {
    let (child, into) = (LayerName::of(&merge.child)?, LayerName::of(&merge.into)?);
    let note = MergeNote { child, into };
    (open.volume.merging.as_ref() == Some(&note)).then_some(note)
}

/// A repeated merge was done before if the upper layer is no longer needed.
fn done_before<L: Layers>(open: &OpenVolume<'_, L>, merge: &Merge) -> Result<(), DiskError> {
    let refused = || DiskError::NotRedundant(merge.child.clone());
    let child = LayerName::of(&merge.child).ok_or_else(refused)?;
    match open.graph()?.needed(&open.volume).contains(&child) {
        true => Err(refused()),
        false => open.collect(),
    }
}
