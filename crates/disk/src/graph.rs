//! Decides which layers a volume needs and which it can do without. It works on names and touches no file.

use std::collections::{BTreeMap, BTreeSet};

use agentiso_core::ids::SnapshotId;

use super::layer_name::LayerName;
use super::storage::KeyframeDue;
use super::volume::{MergeNote, Volume};

/// The properties of a layer's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerInfo {
    pub backing: Option<LayerName>,
    pub virtual_bytes: u64,
    /// The space it takes on the host.
    pub used_bytes: u64,
    /// Whether another directory has a link to it.
    pub shared: bool,
}

/// The layers that a volume's head and snapshots are built on, by name.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) layers: BTreeMap<LayerName, LayerInfo>,
}

/// Two layers that can be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redundant {
    pub(super) note: MergeNote,
    pub(super) above: Vec<LayerName>,
    /// The data of `child` is already in `into`; only backing names are left to change.
    pub(super) copied: bool,
}

impl Graph {
    /// The layers from `top` down to the image.
    pub(super) fn chain<'a>(&'a self, top: &'a LayerName) -> impl Iterator<Item = &'a LayerName> {
        let below = |name: &&'a LayerName| self.layers.get(name)?.backing.as_ref();
        std::iter::successors(Some(top), below).filter(|name| self.layers.contains_key(name))
    }

    /// The layers that the volume is built on.
    pub(super) fn needed(&self, volume: &Volume) -> BTreeSet<LayerName> {
        let mut needed = BTreeSet::new();
        for top in volume.marked() {
            // The layers below one that was visited before were visited with it.
            for layer in self.chain(top) {
                if !needed.insert(layer) {
                    break;
                }
            }
        }
        needed.into_iter().cloned().collect()
    }

    /// Whether a layer is, directly or not, its own backing, so that a chain would never end.
    pub(super) fn is_circular(&self) -> bool {
        let mut grounded = BTreeSet::new();
        self.layers.keys().any(|top| {
            let mut path = BTreeSet::new();
            let unmet = self.chain(top).take_while(|layer| !grounded.contains(layer));
            let circle = unmet.into_iter().any(|layer| !path.insert(layer));
            grounded.extend(path);
            circle
        })
    }

    /// The needed layers that are directly on top of a layer.
    pub(super) fn above(&self, needed: &BTreeSet<LayerName>, layer: &LayerName) -> Vec<LayerName> {
        let on = |name: &&LayerName| {
            self.layers.get(*name).is_some_and(|info| info.backing.as_ref() == Some(layer))
        };
        needed.iter().filter(on).cloned().collect()
    }

    /// The possible merges, the lowest first. A begun merge with only backing names left to change comes before all
    /// others.
    pub(super) fn redundant(&self, volume: &Volume) -> Vec<Redundant> {
        let needed = self.needed(volume);
        let begun = self.begun(volume).filter(|merge| merge.copied);
        let marked = volume.marked();
        let mut found: Vec<(usize, Redundant)> = Vec::new();
        for into in needed.iter().filter(|into| !marked.contains(into)) {
            if let Some(child) = self.only_child(&needed, into)
                && self.may_merge(volume, &child, into)
            {
                let above = self.above(&needed, &child);
                let note = MergeNote { child, into: into.clone() };
                found.push((self.chain(into).count(), Redundant { note, above, copied: false }));
            }
        }
        found.sort_by_key(|(depth, _)| *depth);
        begun.into_iter().chain(found.into_iter().map(|(_, merge)| merge)).collect()
    }

    /// The merge noted in the record, if it is not finished.
    pub(super) fn begun(&self, volume: &Volume) -> Option<Redundant> {
        let note = volume.merging.clone()?;
        let needed = self.needed(volume);
        let child = self.layers.get(&note.child).filter(|_| needed.contains(&note.child))?;
        if child.backing.as_ref() != Some(&note.into) {
            return None;
        }
        let copied = self.above(&needed, &note.into).len() > 1;
        Some(Redundant { above: self.above(&needed, &note.child), note, copied })
    }

    fn only_child(&self, needed: &BTreeSet<LayerName>, layer: &LayerName) -> Option<LayerName> {
        let mut above = self.above(needed, layer);
        let child = above.pop()?;
        above.is_empty().then_some(child)
    }

    /// Both layers belong to this volume alone, and no other operation uses them.
    fn may_merge(&self, volume: &Volume, child: &LayerName, into: &LayerName) -> bool {
        let pivoting = volume.pivot.iter().any(|pivot| [&pivot.from, &pivot.to].contains(&child));
        // A finished keyframe was made of this layer, whose content must not change.
        let flattening = volume.flattening.iter().any(|note| [child, into].contains(&&note.top));
        let alone =
            |name: &LayerName| name.is_own() && self.layers.get(name).is_some_and(|info| !info.shared);
        let size = |name: &LayerName| self.layers.get(name).map(|info| info.virtual_bytes);
        !pivoting && !flattening && alone(child) && alone(into) && size(child) == size(into)
    }

    /// The layers below the head that one keyframe can replace, the topmost first. There are at least as many as `due`
    /// says, none of them is a keyframe, and the run ends before its size exceeds the limit. The layers on top of the
    /// run must belong to this volume alone, because their backing becomes the keyframe, which other volumes do not
    /// have.
    pub(super) fn long_run(&self, volume: &Volume, due: KeyframeDue) -> Vec<LayerName> {
        let needed = self.needed(volume);
        let frozen = self.chain(&volume.head).skip(1);
        let plain = |name: &&LayerName| name.is_own() && !volume.keyframes.contains(*name);
        let mut bytes = 0_u64;
        let small = |name: &&LayerName| {
            bytes = bytes.saturating_add(self.layers.get(*name).map_or(0, |info| info.used_bytes));
            bytes <= due.most_bytes
        };
        let run: Vec<LayerName> = frozen.take_while(plain).take_while(small).cloned().collect();
        let shared = |name: &LayerName| self.layers.get(name).is_none_or(|info| info.shared);
        match run.first() {
            Some(top) if run.len() >= due.layers.max(2) && !self.above(&needed, top).iter().any(shared) => {
                run
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// The layers that would be removed, and the merge that would become possible, if a snapshot were deleted.
    pub(super) fn effect_of_deleting(&self, volume: &Volume, id: SnapshotId) -> DeletionEffect {
        let mut after = volume.clone();
        let layer = after.snapshots.remove(&id);
        let needed = self.needed(&after);
        let unneeded = self.needed(volume).difference(&needed).cloned().collect();
        let merge = layer.filter(|layer| needed.contains(layer) && !after.marked().contains(layer));
        let merge = merge.and_then(|into| {
            let child = self.only_child(&needed, &into)?;
            self.may_merge(&after, &child, &into).then_some(MergeNote { child, into })
        });
        DeletionEffect { unneeded, merge }
    }
}

/// The effect of deleting a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeletionEffect {
    pub(super) unneeded: Vec<LayerName>,
    pub(super) merge: Option<MergeNote>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of numbered layers, each with the number of its backing.
    fn graph(layers: &[(u32, Option<u32>)]) -> Graph {
        let info = |backing: Option<u32>| LayerInfo {
            backing: backing.map(name),
            virtual_bytes: 1 << 30,
            used_bytes: 1 << 20,
            shared: false,
        };
        Graph { layers: layers.iter().map(|(layer, on)| (name(*layer), info(*on))).collect() }
    }

    fn name(number: u32) -> LayerName {
        match LayerName::parse(&format!("{number:016x}.qcow2")) {
            Some(name) => name,
            None => unreachable!("digits make a name"),
        }
    }

    fn volume(head: u32, snapshots: &[u32]) -> Volume {
        let mut volume = Volume::new(name(head), 1 << 30);
        volume.snapshots = snapshots.iter().map(|layer| (SnapshotId::random(), name(*layer))).collect();
        volume
    }

    fn merges(graph: &Graph, volume: &Volume) -> Vec<(LayerName, LayerName)> {
        graph.redundant(volume).into_iter().map(|merge| (merge.note.child, merge.note.into)).collect()
    }

    #[test]
    fn unmarked_layer_with_one_child_is_redundant() {
        let line = graph(&[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(3))]);
        assert_eq!(merges(&line, &volume(4, &[1, 2, 3])), []);
        assert_eq!(merges(&line, &volume(4, &[1, 3])), [(name(3), name(2))]);
        assert_eq!(merges(&line, &volume(4, &[])).len(), 3);
        assert_eq!(merges(&line, &volume(4, &[]))[0], (name(2), name(1)), "the lowest first");
        let branch = graph(&[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(2))]);
        assert_eq!(merges(&branch, &volume(4, &[3])), [(name(2), name(1))], "two lie on the second");
    }

    #[test]
    fn shared_or_resized_layers_are_not_redundant() {
        let mut line = graph(&[(1, None), (2, Some(1))]);
        for layer in [1, 2] {
            for change in
                [|info: &mut LayerInfo| info.shared = true, |info: &mut LayerInfo| info.virtual_bytes += 512]
            {
                let before = line.layers.clone();
                line.layers.entry(name(layer)).and_modify(change);
                assert_eq!(merges(&line, &volume(2, &[])), []);
                line.layers = before;
            }
        }
        assert_eq!(merges(&line, &volume(2, &[])).len(), 1);
    }

    #[test]
    fn circular_layers_are_detected() {
        assert!(graph(&[(1, Some(1))]).is_circular());
        assert!(graph(&[(1, Some(3)), (2, Some(1)), (3, Some(2)), (4, Some(3))]).is_circular());
        assert!(!graph(&[(1, None), (2, Some(1)), (3, Some(1)), (4, Some(3))]).is_circular());
    }

    #[test]
    fn layer_run_ends_at_keyframe_or_image() {
        let line = graph(&[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(3))]);
        let mut volume = volume(4, &[1, 2, 3]);
        assert_eq!(line.long_run(&volume, KeyframeDue::after(3)), [name(3), name(2), name(1)]);
        assert_eq!(line.long_run(&volume, KeyframeDue::after(4)), []);
        volume.keyframes.insert(name(1));
        assert_eq!(line.long_run(&volume, KeyframeDue::after(2)), [name(3), name(2)]);
        assert_eq!(line.long_run(&volume, KeyframeDue::after(3)), []);
    }
}
