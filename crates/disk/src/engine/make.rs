//! Creates, forks and deletes volumes.

use std::path::{Path, PathBuf};

use agentiso_core::ids::SnapshotId;

use super::{OpenVolume, is_half_made, memory_of};
use crate::error::DiskError;
use crate::layer_name::LayerName;
use crate::layers::Layers;
use crate::storage::Backing;
use crate::volume::{VOLUME_FILE, Volume};

pub(super) fn create(
    layers: &impl Layers,
    dir: &Path,
    backing: &Backing,
    virtual_bytes: u64,
) -> Result<PathBuf, DiskError> {
    // An earlier attempt in this directory may have used other layers.
    delete(layers, dir)?;
    undone_on_error(layers, dir, || {
        let mut needed = 0;
        for (index, layer) in backing.layers.iter().enumerate() {
            needed = needed.max(layers.adopt(layer, dir, &LayerName::of_image(index))?);
        }
        if virtual_bytes < needed {
            return Err(DiskError::TooSmall {
                image: backing.name.clone(),
                wanted_gib: virtual_bytes >> 30,
                needed_gib: needed.div_ceil(1 << 30),
            });
        }
        let head = LayerName::first();
        let top = LayerName::of_image(backing.layers.len().saturating_sub(1));
        layers.create(dir, &head, &top, virtual_bytes)?;
        layers.store(dir, &Volume::new(head.clone(), virtual_bytes).to_text())?;
        Ok(head.in_dir(dir))
    })
}

/// Stores the record first and makes the head last. An interrupted fork lacks the head that its record names, so it is
/// never taken for a complete one whose linked layers may be written to.
pub(super) fn fork(
    layers: &impl Layers,
    source: &Path,
    snapshot: SnapshotId,
    dir: &Path,
) -> Result<PathBuf, DiskError> {
    let open = OpenVolume::at(layers, source)?;
    let top = open.snapshot(snapshot)?;
    let graph = open.graph()?;
    let made = layers.make_directory(dir)?;
    delete(layers, dir)?;
    let forked = undone_on_error(layers, dir, || {
        let mut volume = Volume::new(LayerName::unique(), open.volume.virtual_bytes);
        let keyframes = graph.chain(top).filter(|layer| open.volume.keyframes.contains(*layer));
        volume.keyframes = keyframes.cloned().collect();
        for layer in graph.chain(top).filter(|layer| layer.is_own()) {
            volume.inherit(layer.clone(), graph.layers.get(layer).map_or(0, |info| info.used_bytes));
        }
        layers.store(dir, &volume.to_text())?;
        for layer in graph.chain(top) {
            layers.link(source, dir, layer)?;
        }
        layers.sync(dir)?;
        layers.create(dir, &volume.head, top, volume.virtual_bytes)?;
        layers.sync(dir)?;
        Ok(volume.head.in_dir(dir))
    });
    if forked.is_err() && made {
        let _ = discard(layers, dir);
    }
    forked
}

/// Deletes a volume, and its directory if that is empty then.
pub(super) fn discard(layers: &impl Layers, dir: &Path) -> Result<(), DiskError> {
    delete(layers, dir)?;
    match (dir.parent(), dir.file_name().and_then(|name| name.to_str())) {
        (Some(parent), Some(name)) if layers.names(dir)?.is_empty() => layers.remove(parent, name),
        (_, _) => Ok(()),
    }
}

/// Removes the record last, because a first layer without a record would count as a volume.
pub(super) fn delete(layers: &impl Layers, dir: &Path) -> Result<(), DiskError> {
    let names = layers.names(dir)?;
    for name in &names {
        let layer = LayerName::parse(name).is_some_and(|layer| layer.is_own() || layer.is_image());
        if layer || memory_of(name).is_some() || is_half_made(name) {
            layers.remove(dir, name)?;
        }
    }
    if !names.is_empty() {
        layers.sync(dir)?;
    }
    layers.remove(dir, VOLUME_FILE)
}

/// Removes what was made if the work fails. An error of the removal itself is ignored, because the caller gets the
/// first one.
fn undone_on_error<T>(
    layers: &impl Layers,
    dir: &Path,
    work: impl FnOnce() -> Result<T, DiskError>,
) -> Result<T, DiskError> {
    let done = work();
    if done.is_err() {
        let _ = delete(layers, dir);
    }
    done
}
