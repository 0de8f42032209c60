//! What is done to volumes, in steps that [`Layers`] can take.
//!
//! The order of the steps is what makes a crash harmless: what the record names is complete before it is named,
//! and is removed only when it is named no more. Every file that nobody names is debris, which
//! [`settle`](settle::settle) removes.

mod keyframe;
mod make;
mod merge;
mod settle;
mod sizes;
mod snapshot;
mod storage;

use std::collections::BTreeMap;
use std::path::Path;

use agentiso_core::ids::SnapshotId;

pub(super) use self::sizes::sizes;
pub(super) use self::snapshot::{listed, origin};
use super::error::DiskError;
use super::graph::Graph;
use super::layer_name::LayerName;
use super::layers::Layers;
use super::volume::{VOLUME_FILE, Volume};

/// What the directory of a snapshot's memory begins with; the snapshot's id follows.
const MEMORY: &str = "memory-";

/// A volume's record, together with the place it is in.
struct Open<'a, L> {
    layers: &'a L,
    dir: &'a Path,
    volume: Volume,
}

impl<'a, L: Layers> Open<'a, L> {
    fn at(layers: &'a L, dir: &'a Path) -> Result<Self, DiskError> {
        let mut volume = match layers.load(dir)? {
            Some(text) => Volume::parse(&text)
                .map_err(|reason| DiskError::Record { path: dir.join(VOLUME_FILE), reason })?,
            None => unrecorded(layers, dir)?,
        };
        if volume.inherited.is_none() {
            volume.inherited = Some(shared_layers(layers, dir)?);
        }
        Ok(Self { layers, dir, volume })
    }

    /// Looks at every layer the volume stands on.
    fn graph(&self) -> Result<Graph, DiskError> {
        let mut layers = BTreeMap::new();
        let mut open: Vec<LayerName> = self.volume.marked().into_iter().cloned().collect();
        while let Some(name) = open.pop() {
            if layers.contains_key(&name) {
                continue;
            }
            match self.layers.inspect(self.dir, &name)? {
                Some(info) => {
                    open.extend(info.backing.clone());
                    layers.insert(name, info);
                }
                // An image may stand on something we were not given; whether it can is QEMU's to say.
                None if !name.is_own() && !self.volume.marked().contains(&name) => {}
                None => return Err(DiskError::NoLayer(name.in_dir(self.dir))),
            }
        }
        let graph = Graph { layers };
        match graph.is_circular() {
            true => Err(DiskError::Circle(self.dir.to_owned())),
            false => Ok(graph),
        }
    }

    fn snapshot(&self, snapshot: SnapshotId) -> Result<&LayerName, DiskError> {
        let missing = || DiskError::NoSnapshot { directory: self.dir.to_owned(), snapshot };
        self.volume.snapshots.get(&snapshot).ok_or_else(missing)
    }

    fn save(&self) -> Result<(), DiskError> {
        self.layers.store(self.dir, &self.volume.to_text())
    }

    /// Replaces the record by one that names a layer which was made for it. On an error the old record holds, and
    /// the layer is gone, as far as that can still be had.
    fn save_with(&mut self, changed: Volume, made: &LayerName) -> Result<(), DiskError> {
        let old = std::mem::replace(&mut self.volume, changed);
        let Err(error) = self.save() else { return Ok(()) };
        // The new record may be in place all the same: only that it is durable is not known.
        let replaced = !matches!(self.layers.load(self.dir), Ok(text) if text != Some(self.volume.to_text()));
        self.volume = old;
        if !replaced || self.save().is_ok() {
            let _ = self.layers.remove(self.dir, made.as_str());
        }
        Err(error)
    }

    /// Removes the layers that nobody needs.
    fn collect(&self) -> Result<(), DiskError> {
        for layer in self.unneeded()? {
            self.layers.remove(self.dir, layer.as_str())?;
        }
        Ok(())
    }

    /// The layers in the directory that nothing in the record leads to.
    fn unneeded(&self) -> Result<Vec<LayerName>, DiskError> {
        let needed = self.graph()?.needed(&self.volume);
        let mut own = own_layers(self.layers, self.dir)?;
        own.retain(|layer| !needed.contains(layer));
        Ok(own)
    }
}

/// A workspace that was made before there were records has one layer of its own. If another directory has it too,
/// it is a template's, or half of a fork, and nothing to write to. If there are others beside it, there was a record that
/// named them, and it is lost.
fn unrecorded(layers: &impl Layers, dir: &Path) -> Result<Volume, DiskError> {
    let head = LayerName::first();
    let others = own_layers(layers, dir)?.into_iter().filter(|layer| *layer != head).count();
    if others > 0 {
        return Err(DiskError::RecordLost { path: dir.join(VOLUME_FILE), layers: others });
    }
    match layers.inspect(dir, &head)? {
        Some(info) if !info.shared => Ok(Volume::new(head, info.virtual_bytes)),
        Some(_) | None => Err(DiskError::NoVolume(dir.to_owned())),
    }
}

fn own_layers(layers: &impl Layers, dir: &Path) -> Result<Vec<LayerName>, DiskError> {
    let names = layers.names(dir)?;
    Ok(names.iter().filter_map(|name| LayerName::parse(name)).filter(LayerName::is_own).collect())
}

/// What a record of before this was noted may have inherited. A layer that another has too was written by one of the two;
/// it is not known which, and none of them is to be kept from writing by what may be the other's.
fn shared_layers(layers: &impl Layers, dir: &Path) -> Result<BTreeMap<LayerName, u64>, DiskError> {
    let mut shared = BTreeMap::new();
    for layer in own_layers(layers, dir)? {
        if let Some(info) = layers.inspect(dir, &layer)?
            && info.shared
        {
            shared.insert(layer, info.used_bytes);
        }
    }
    Ok(shared)
}

/// The snapshot whose memory is in the directory of this name.
fn memory_of(name: &str) -> Option<SnapshotId> {
    name.strip_prefix(MEMORY)?.parse().ok()
}

fn memory_name(snapshot: SnapshotId) -> String {
    format!("{MEMORY}{snapshot}")
}

/// Whether a file, or a directory of memory, is one that was being written when somebody crashed.
fn is_half_made(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('.') else { return false };
    if rest.starts_with(MEMORY) {
        return true;
    }
    let of_layer = rest.rsplit_once('.').and_then(|(layer, _)| LayerName::parse(layer));
    rest.starts_with(&format!("{VOLUME_FILE}."))
        || of_layer.is_some_and(|layer| layer.is_own() || layer.is_image())
}
