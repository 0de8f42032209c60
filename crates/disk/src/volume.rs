//! The record of a volume, `volume.json` in its directory: its head, its snapshots and unfinished operations.

use std::collections::{BTreeMap, BTreeSet};

use agentiso_core::ids::SnapshotId;
use agentiso_sys::seal::{self, Seal};
use serde::{Deserialize, Serialize};

use super::layer_name::LayerName;

/// The record's name in a volume's directory.
pub const VOLUME_FILE: &str = "volume.json";

const SCHEMA: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Volume {
    schema: u32,
    pub(super) virtual_bytes: u64,
    /// The layer that the VM writes to.
    pub(super) head: LayerName,
    /// The layer of each snapshot.
    #[serde(default)]
    pub(super) snapshots: BTreeMap<SnapshotId, LayerName>,
    /// Snapshots that were begun after the volume was last settled. If the ledger does not know one of these, it may
    /// never have been finished and is dropped. Any other snapshot is kept, whatever the ledger says.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) unconfirmed: BTreeSet<SnapshotId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pivot: Option<PivotNote>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) merging: Option<MergeNote>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) flattening: Option<KeyframeNote>,
    /// Layers that replace several others, to keep the chain of layers short.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) keyframes: BTreeSet<LayerName>,
    /// The bytes of each layer that existed when the volume was forked. Others wrote them, so they count for others.
    /// Records of earlier versions have `None`; [`OpenVolume::at`](super::engine) estimates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) inherited: Option<BTreeMap<LayerName, u64>>,
}

/// A begun snapshot. The record does not know whether the VM has moved from `from` to `to`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PivotNote {
    pub(super) snapshot: SnapshotId,
    pub(super) from: LayerName,
    pub(super) to: LayerName,
}

/// A begun merge. Layers on `child` are put on `into` only when all data of `child` is in `into`, so a second layer on
/// `into` means that the data is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MergeNote {
    pub(super) child: LayerName,
    pub(super) into: LayerName,
}

/// A finished keyframe: `file` reads as `top` does, and will replace it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeyframeNote {
    pub(super) file: LayerName,
    pub(super) top: LayerName,
}

impl Volume {
    pub(super) fn new(head: LayerName, virtual_bytes: u64) -> Self {
        Self {
            schema: SCHEMA,
            virtual_bytes,
            head,
            snapshots: BTreeMap::new(),
            unconfirmed: BTreeSet::new(),
            pivot: None,
            merging: None,
            flattening: None,
            keyframes: BTreeSet::new(),
            inherited: Some(BTreeMap::new()),
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let volume: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match volume.schema {
            SCHEMA if seal::check(text) == Seal::Broken => {
                Err("its checksum does not match its content".to_owned())
            }
            SCHEMA => Ok(volume),
            other => Err(format!("it has schema {other}, but this agentiso reads {SCHEMA}")),
        }
    }

    pub(super) fn to_text(&self) -> String {
        // This cannot fail: there are only maps with string keys and plain values.
        seal::seal(&serde_json::to_string_pretty(self).unwrap_or_default())
    }

    /// The layers that are needed for themselves, and not only as a backing.
    pub(super) fn marked(&self) -> BTreeSet<&LayerName> {
        let pivot = self.pivot.iter().flat_map(|pivot| [&pivot.from, &pivot.to]);
        let keyframe = self.flattening.iter().map(|note| &note.file);
        self.snapshots.values().chain([&self.head]).chain(pivot).chain(keyframe).collect()
    }

    /// The bytes of a layer that others wrote.
    pub(super) fn inherited_bytes(&self, layer: &LayerName) -> u64 {
        self.inherited.as_ref().and_then(|inherited| inherited.get(layer)).copied().unwrap_or(0)
    }

    pub(super) fn inherit(&mut self, layer: LayerName, bytes: u64) {
        let inherited = self.inherited.get_or_insert_default();
        match bytes {
            0 => inherited.remove(&layer),
            bytes => inherited.insert(layer, bytes),
        };
    }

    /// Points the head and all snapshots at `to` that pointed at `from`.
    pub(super) fn move_marks(&mut self, from: &LayerName, to: &LayerName) {
        let marks = self.snapshots.values_mut().chain([&mut self.head]);
        for mark in marks.filter(|mark| *mark == from) {
            *mark = to.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_record_round_trips() {
        let mut volume = Volume::new(LayerName::first(), 10 << 30);
        assert_eq!(Volume::parse(&volume.to_text()).unwrap(), volume);
        let (id, to) = (SnapshotId::random(), LayerName::unique());
        volume.snapshots.insert(id, LayerName::unique());
        volume.unconfirmed.insert(id);
        volume.pivot = Some(PivotNote { snapshot: id, from: LayerName::first(), to: to.clone() });
        volume.merging = Some(MergeNote { child: to.clone(), into: LayerName::first() });
        volume.flattening = Some(KeyframeNote { file: to.clone(), top: LayerName::first() });
        volume.keyframes.insert(to.clone());
        volume.inherit(to.clone(), 1 << 20);
        assert_eq!(volume.inherited_bytes(&to), 1 << 20);
        assert_eq!(Volume::parse(&volume.to_text()).unwrap(), volume);
    }

    /// One was made by the last version that noted nothing as unconfirmed, the other by the first that did.
    #[test]
    fn real_records_are_read_and_written_back() {
        let older = include_str!("../tests/fixtures/volume-v1-older.json");
        let volume = Volume::parse(older).unwrap();
        assert_eq!((volume.snapshots.len(), volume.unconfirmed.len()), (2, 0));
        assert!(volume.snapshots.values().any(|layer| *layer == LayerName::first()));
        let known = |text: &str| {
            let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).unwrap();
            fields.remove("checksum");
            fields
        };
        assert_eq!(known(&volume.to_text()), known(older), "an earlier version could go on with it");
        let made = include_str!("../tests/fixtures/volume-v1-made.json");
        let volume = Volume::parse(made).unwrap();
        assert!(volume.unconfirmed.iter().eq(volume.snapshots.keys()));
        assert_eq!(volume.inherited_bytes(&LayerName::first()), 1_785_856);
        assert_eq!(known(&volume.to_text()), known(made));
    }

    #[test]
    fn record_without_inherited_sizes_is_read() {
        let text = r#"{ "schema": 1, "virtual_bytes": 512, "head": "disk.qcow2", "snapshots": {} }"#;
        let volume = Volume::parse(text).unwrap();
        assert_eq!(volume.inherited, None);
        assert_eq!(volume.inherited_bytes(&LayerName::first()), 0);
    }

    #[test]
    fn unknown_or_damaged_record_is_refused() {
        let text = Volume::new(LayerName::first(), 512).to_text();
        let newer = text.replace("\"schema\": 1", "\"schema\": 2");
        assert_eq!(Volume::parse(&newer).unwrap_err(), "it has schema 2, but this agentiso reads 1");
        assert!(Volume::parse(&text.replace("disk.qcow2", "risk.qcow2")).unwrap_err().contains("checksum"));
        assert!(Volume::parse(&text.replace("disk.qcow2", "../disk.qcow2")).is_err());
        assert!(Volume::parse("").is_err());
    }
}
