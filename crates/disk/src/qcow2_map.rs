//! The map from the clusters of a disk to their offsets in a layer's file: the L1 table and the L2 tables it points
//! to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::qcow2_header::{CLUSTER, HeaderError, Layout};

/// Entries of an L2 table, which is one cluster.
pub(super) const L2_ENTRIES: u64 = CLUSTER / 8;

/// The cluster has no other reference, so it may be written in place.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;

/// A layer's entry for one cluster of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    /// The layer below decides.
    Absent,
    /// Zeroes, possibly with a cluster in the file that is reserved for it.
    Zero(Option<u64>),
    /// Data, at this offset in the file.
    Data(u64),
}

impl Cluster {
    fn of_entry(entry: u64) -> Self {
        match (entry & OFFSET, entry & ZERO != 0) {
            (0, true) => Self::Zero(None),
            (at, true) => Self::Zero(Some(at)),
            (0, false) => Self::Absent,
            (at, false) => Self::Data(at),
        }
    }

    fn to_entry(self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Zero(None) => ZERO,
            Self::Zero(Some(at)) => at | ZERO | COPIED,
            Self::Data(at) => at | COPIED,
        }
    }

    /// The offset of its cluster in the file.
    pub(super) fn offset(self) -> Option<u64> {
        match self {
            Self::Absent | Self::Zero(None) => None,
            Self::Zero(Some(at)) | Self::Data(at) => Some(at),
        }
    }
}

/// An L2 table, and its offset in the file.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) at: u64,
    entries: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) layout: Layout,
    /// By index in the L1 table.
    pub(super) tables: BTreeMap<u64, Table>,
}

impl Map {
    pub(super) fn read(file: &File) -> Result<Self, HeaderError> {
        let layout = Layout::read(file)?;
        let length = file.metadata()?.len();
        let (mut tables, mut offsets) = (BTreeMap::new(), BTreeSet::new());
        for (index, entry) in (0..).zip(words(file, layout.l1_at, layout.l1_entries)?) {
            if entry & OFFSET == 0 {
                continue;
            }
            let at = checked_offset(entry, length)?;
            // Entries that share a table could need more memory than the host has.
            if !offsets.insert(at) {
                return Err(HeaderError::Damaged("two entries point to the same cluster"));
            }
            let entries = words(file, at, L2_ENTRIES)?;
            for entry in &entries {
                if entry & COMPRESSED != 0 {
                    return Err(HeaderError::Unsupported("compressed clusters"));
                }
                if entry & OFFSET != 0 {
                    checked_offset(*entry, length)?;
                }
            }
            tables.insert(index, Table { at, entries });
        }
        Ok(Self { layout, tables })
    }

    /// The entry for a cluster of the disk.
    pub(super) fn get(&self, cluster: u64) -> Cluster {
        let table = self.tables.get(&(cluster / L2_ENTRIES));
        let entry = table.and_then(|table| table.entries.get((cluster % L2_ENTRIES) as usize));
        entry.map_or(Cluster::Absent, |entry| Cluster::of_entry(*entry))
    }

    /// The clusters that the layer has an entry for, in order.
    pub(super) fn present(&self) -> impl Iterator<Item = (u64, Cluster)> {
        self.tables
            .iter()
            .flat_map(|(index, table)| {
                let numbered = (index * L2_ENTRIES..).zip(&table.entries);
                numbered.map(|(cluster, entry)| (cluster, Cluster::of_entry(*entry)))
            })
            .filter(|(_, cluster)| *cluster != Cluster::Absent)
    }

    /// Changes the map in memory. The L2 table must exist.
    pub(super) fn set(&mut self, cluster: u64, to: Cluster) {
        if let Some(table) = self.tables.get_mut(&(cluster / L2_ENTRIES))
            && let Some(entry) = table.entries.get_mut((cluster % L2_ENTRIES) as usize)
        {
            *entry = to.to_entry();
        }
    }

    pub(super) fn insert_table(&mut self, index: u64, at: u64) {
        self.tables.insert(index, Table { at, entries: vec![0; L2_ENTRIES as usize] });
    }

    pub(super) fn write_table(&self, file: &File, index: u64) -> Result<(), HeaderError> {
        let Some(table) = self.tables.get(&index) else { return Ok(()) };
        let bytes: Vec<u8> = table.entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        Ok(file.write_all_at(&bytes, table.at)?)
    }

    /// Makes the L1 table point to an L2 table.
    pub(super) fn write_pointer(&self, file: &File, index: u64) -> Result<(), HeaderError> {
        let Some(table) = self.tables.get(&index) else { return Ok(()) };
        Ok(file.write_all_at(&(table.at | COPIED).to_be_bytes(), self.layout.l1_at + index * 8)?)
    }

    /// The bytes of data in `below` that this layer hides.
    pub(super) fn bytes_hidden_in(&self, below: &Self) -> u64 {
        let hidden = |(cluster, _): &(u64, Cluster)| below.get(*cluster).offset().is_some();
        self.present().filter(hidden).count() as u64 * CLUSTER
    }
}

/// Reads a table of 64-bit words.
pub(super) fn words(file: &File, at: u64, count: u64) -> Result<Vec<u64>, HeaderError> {
    let mut bytes = vec![0; count as usize * 8];
    file.read_exact_at(&mut bytes, at)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u64::from_be_bytes(*word)).collect())
}

/// The offset in an entry, which must be inside the file. The last cluster may be incomplete: the rest is zeroes.
pub(super) fn checked_offset(entry: u64, length: u64) -> Result<u64, HeaderError> {
    let at = entry & OFFSET;
    match at.is_multiple_of(CLUSTER) && at < length {
        true => Ok(at),
        false => Err(HeaderError::Damaged("an entry points outside the file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_entry_round_trips() {
        let all =
            [Cluster::Absent, Cluster::Zero(None), Cluster::Zero(Some(CLUSTER)), Cluster::Data(7 * CLUSTER)];
        for cluster in all {
            assert_eq!(Cluster::of_entry(cluster.to_entry()), cluster);
        }
    }

    #[test]
    fn misplaced_cluster_offsets_are_refused() {
        assert_eq!(checked_offset((3 * CLUSTER) | COPIED, 3 * CLUSTER + 1).unwrap(), 3 * CLUSTER);
        assert!(checked_offset(3 * CLUSTER, 3 * CLUSTER).is_err());
        assert!(checked_offset(3 * CLUSTER + 512, 9 * CLUSTER).is_err());
    }
}
