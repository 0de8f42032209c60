//! Which layers a volume needs and which it could do without: decisions over names, without any file.

use std::collections::{BTreeMap, BTreeSet};

use agentiso_core::ids::SnapshotId;

use super::layer_name::LayerName;
use super::storage::KeyframeDue;
use super::volume::{MergeNote, Volume};

/// What a layer's file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerInfo {
    pub backing: Option<LayerName>,
    pub virtual_bytes: u64,
    /// What it takes on the host.
    pub used_bytes: u64,
    /// Another directory has it too.
    pub shared: bool,
}

/// A volume's layers by name, all that its head and snapshots stand on.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) layers: BTreeMap<LayerName, LayerInfo>,
}

/// A merge that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redundant {
    pub(super) note: MergeNote,
    pub(super) above: Vec<LayerName>,
    /// All of `child` is in `into` already; only names are to be changed.
    pub(super) copied: bool,
}

impl Graph {
    /// From a layer down to the image.
    pub(super) fn chain<'a>(&'a self, top: &'a LayerName) -> impl Iterator<Item = &'a LayerName> {
        let below = |name: &&'a LayerName| self.layers.get(name)?.backing.as_ref();
        std::iter::successors(Some(top), below).filter(|name| self.layers.contains_key(name))
    }

    /// What the volume stands on.
    pub(super) fn needed(&self, volume: &Volume) -> BTreeSet<LayerName> {
        let mut needed = BTreeSet::new();
        for top in volume.marked() {
            // What lies below a layer that was met before was met then as well.
            for layer in self.chain(top) {
                if !needed.insert(layer) {
                    break;
                }
            }
        }
        needed.into_iter().cloned().collect()
    }

    /// Whether some layer stands on itself, so that a chain would have no end.
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

    /// Those among the needed that lie directly on a layer.
    pub(super) fn above(&self, needed: &BTreeSet<LayerName>, layer: &LayerName) -> Vec<LayerName> {
        let on = |name: &&LayerName| {
            self.layers.get(*name).is_some_and(|info| info.backing.as_ref() == Some(layer))
        };
        needed.iter().filter(on).cloned().collect()
    }

    /// The merges that make sense, the lowest first. One that was begun and has only names left to change is the first
    /// of all, whatever else is true of it.
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

    /// The merge that was noted, if there is still something to merge.
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

    /// Both are this volume's alone, and nothing else is going on with them.
    fn may_merge(&self, volume: &Volume, child: &LayerName, into: &LayerName) -> bool {
        let pivoting = volume.pivot.iter().any(|pivot| [&pivot.from, &pivot.to].contains(&child));
        // A keyframe was made of what this layer holds, and must go on to read as it does.
        let flattening = volume.flattening.iter().any(|note| [child, into].contains(&&note.top));
        let alone =
            |name: &LayerName| name.is_own() && self.layers.get(name).is_some_and(|info| !info.shared);
        let size = |name: &LayerName| self.layers.get(name).map(|info| info.virtual_bytes);
        !pivoting && !flattening && alone(child) && alone(into) && size(child) == size(into)
    }

    /// The layers below the head that one could stand for, the topmost first: as many as are due, with no keyframe among
    /// them, and nothing below them that is too large to be copied. Those on top of them must be this volume's alone,
    /// because they are put on the keyframe, which others lack.
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

    /// What would be removed, and which two layers could be merged, if a snapshot were dropped.
    pub(super) fn without(&self, volume: &Volume, id: SnapshotId) -> Without {
        let mut after = volume.clone();
        let layer = after.snapshots.remove(&id);
        let needed = self.needed(&after);
        let unneeded = self.needed(volume).difference(&needed).cloned().collect();
        let merge = layer.filter(|layer| needed.contains(layer) && !after.marked().contains(layer));
        let merge = merge.and_then(|into| {
            let child = self.only_child(&needed, &into)?;
            self.may_merge(&after, &child, &into).then_some(MergeNote { child, into })
        });
        Without { unneeded, merge }
    }
}

/// What dropping a snapshot would bring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Without {
    pub(super) unneeded: Vec<LayerName>,
    pub(super) merge: Option<MergeNote>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers by number, each with the number of the one it lies on.
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
    fn a_layer_is_redundant_when_nobody_asks_for_it_and_one_lies_on_it() {
        let line = graph(&[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(3))]);
        assert_eq!(merges(&line, &volume(4, &[1, 2, 3])), []);
        assert_eq!(merges(&line, &volume(4, &[1, 3])), [(name(3), name(2))]);
        assert_eq!(merges(&line, &volume(4, &[])).len(), 3);
        assert_eq!(merges(&line, &volume(4, &[]))[0], (name(2), name(1)), "the lowest first");
        let branch = graph(&[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(2))]);
        assert_eq!(merges(&branch, &volume(4, &[3])), [(name(2), name(1))], "two lie on the second");
    }

    #[test]
    fn what_is_shared_or_of_another_size_is_not_redundant() {
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
    fn a_circle_is_found() {
        assert!(graph(&[(1, Some(1))]).is_circular());
        assert!(graph(&[(1, Some(3)), (2, Some(1)), (3, Some(2)), (4, Some(3))]).is_circular());
        assert!(!graph(&[(1, None), (2, Some(1)), (3, Some(1)), (4, Some(3))]).is_circular());
    }

    #[test]
    fn a_run_ends_at_a_keyframe_or_the_image() {
        let line = graph(&[(1, None), (2, Some(1)), (3, Some(2)), (4, Some(3))]);
        let mut volume = volume(4, &[1, 2, 3]);
        assert_eq!(line.long_run(&volume, KeyframeDue::after(3)), [name(3), name(2), name(1)]);
        assert_eq!(line.long_run(&volume, KeyframeDue::after(4)), []);
        volume.keyframes.insert(name(1));
        assert_eq!(line.long_run(&volume, KeyframeDue::after(2)), [name(3), name(2)]);
        assert_eq!(line.long_run(&volume, KeyframeDue::after(3)), []);
    }
}
