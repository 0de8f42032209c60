//! The operations on volumes, as sequences of [`Layers`] steps.
//!
//! The order of the steps makes a crash harmless: a layer is complete before the record names it, and is removed only
//! after the record no longer does. Unnamed files are debris, which [`settle`](settle::settle) removes.

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

/// The prefix of the directory of a snapshot's memory; the snapshot's id follows.
const MEMORY: &str = "memory-";

/// A volume's record, with the backend and directory it was read from.
struct OpenVolume<'a, L> {
    layers: &'a L,
    dir: &'a Path,
    volume: Volume,
}

impl<'a, L: Layers> OpenVolume<'a, L> {
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

    /// Inspects every layer that the volume is built on.
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
                // An image may have a backing that we were not given; QEMU reports it if that is an error.
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

    /// Replaces the record by one that names a new layer. On an error, the old record stays valid and the layer is
    /// removed, as far as possible.
    fn save_with(&mut self, changed: Volume, made: &LayerName) -> Result<(), DiskError> {
        let old = std::mem::replace(&mut self.volume, changed);
        let Err(error) = self.save() else { return Ok(()) };
        // The new record may be in place all the same, if only making it durable failed.
        let replaced = !matches!(self.layers.load(self.dir), Ok(text) if text != Some(self.volume.to_text()));
        self.volume = old;
        if !replaced || self.save().is_ok() {
            let _ = self.layers.remove(self.dir, made.as_str());
        }
        Err(error)
    }

    /// Removes the unneeded layers.
    fn collect(&self) -> Result<(), DiskError> {
        for layer in self.unneeded()? {
            self.layers.remove(self.dir, layer.as_str())?;
        }
        Ok(())
    }

    /// The layers in the directory that the record does not lead to.
    fn unneeded(&self) -> Result<Vec<LayerName>, DiskError> {
        let needed = self.graph()?.needed(&self.volume);
        let mut own = own_layers(self.layers, self.dir)?;
        own.retain(|layer| !needed.contains(layer));
        Ok(own)
    }
}

/// The volume of a workspace from before there were records, which has one layer of its own. If another directory has
/// a link to it, it is a template's or part of an unfinished fork, and must not be written to. If there are other
/// layers of its own, there was a record that named them, and it is lost.
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

/// The inherited bytes for a record of a version that did not note them. One of two volumes wrote a layer that both
/// have, and it is not known which. It counts for neither, so that neither is kept from writing because of the other.
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

/// Whether a file or memory directory was left unfinished by a crash.
fn is_half_made(name: &str) -> bool {
    let Some(rest) = name.strip_prefix('.') else { return false };
    if rest.starts_with(MEMORY) {
        return true;
    }
    let of_layer = rest.rsplit_once('.').and_then(|(layer, _)| LayerName::parse(layer));
    rest.starts_with(&format!("{VOLUME_FILE}."))
        || of_layer.is_some_and(|layer| layer.is_own() || layer.is_image())
}
