//! Computes the space that volumes and snapshots take on the host.

use std::path::Path;

use agentiso_core::ids::SnapshotId;
use agentiso_vm::{SizesOf, SnapshotSizes, VolumeSizes};

use super::{OpenVolume, memory_name, memory_of};
use crate::error::DiskError;
use crate::graph::LayerInfo;
use crate::layer_name::LayerName;
use crate::layers::Layers;

pub(crate) fn sizes(layers: &impl Layers, dir: &Path, of: SizesOf) -> Result<VolumeSizes, DiskError> {
    let open = OpenVolume::at(layers, dir)?;
    let volume = &open.volume;
    let mut sizes = VolumeSizes { virtual_bytes: volume.virtual_bytes, ..VolumeSizes::default() };
    for name in layers.names(dir)?.iter().filter(|name| is_counted(name)) {
        let bytes = layers.tree_bytes(dir, name)?;
        let inherited = LayerName::parse(name).map_or(0, |layer| volume.inherited_bytes(&layer));
        sizes.used_bytes += bytes.unshared;
        sizes.charged_bytes += bytes.all.saturating_sub(inherited);
    }
    if of == SizesOf::NoSnapshot {
        return Ok(sizes);
    }
    let graph = open.graph()?;
    let asked = |snapshot: SnapshotId| match of {
        SizesOf::NoSnapshot => false,
        SizesOf::Snapshot(one) => one == snapshot,
        SizesOf::All => true,
    };
    for (snapshot, top) in volume.snapshots.iter().filter(|(snapshot, _)| asked(**snapshot)) {
        let memory = layers.tree_bytes(dir, &memory_name(*snapshot))?;
        let own = graph.chain(top).filter(|layer| layer.is_own());
        let referenced: u64 =
            own.filter_map(|layer| graph.layers.get(layer)).map(|info| info.used_bytes).sum();
        let effect = graph.effect_of_deleting(volume, *snapshot);
        let removed = effect.unneeded.iter().filter_map(|name| Some(alone(name, graph.layers.get(name)?)));
        let mut used: u64 = removed.sum();
        if let Some(merge) = &effect.merge {
            used += layers.overlap(dir, &merge.child, &merge.into)?;
        }
        let snapshot_sizes =
            SnapshotSizes { used_bytes: used + memory.unshared, referenced_bytes: referenced + memory.all };
        sizes.snapshots.insert(*snapshot, snapshot_sizes);
    }
    Ok(sizes)
}

/// Whether a file or directory holds a part of the disk, or of a snapshot's memory.
fn is_counted(name: &str) -> bool {
    memory_of(name).is_some() || LayerName::parse(name).is_some_and(|layer| layer.is_own())
}

/// The space that removing a layer would free.
fn alone(name: &LayerName, info: &LayerInfo) -> u64 {
    match name.is_own() && !info.shared {
        true => info.used_bytes,
        false => 0,
    }
}
