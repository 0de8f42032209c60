//! The clusters of a layer's file that are in use. The format requires a reference count for each of them.
//!
//! The counts are computed from the map, which is authoritative, so that clusters which a crash left allocated but
//! unused are found again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::qcow2_header::{CLUSTER, HeaderError};
use super::qcow2_map::{Map, checked_offset, words};

/// The number of counts in a block, which is one cluster of 16-bit words.
const COUNTS: u64 = CLUSTER / 2;

#[derive(Debug)]
pub(super) struct Refcounts {
    table_at: u64,
    /// The number of entries in the refcount table.
    most_blocks: u64,
    /// The offset of each block, by index in the table.
    blocks: BTreeMap<u64, u64>,
    /// The used clusters, by number in the file.
    used: BTreeSet<u64>,
    /// All clusters with lower numbers are in use.
    full_below: u64,
}

impl Refcounts {
    pub(super) fn of(file: &File, map: &Map) -> Result<Self, HeaderError> {
        let layout = &map.layout;
        let most_blocks = layout.refcount_table_clusters * CLUSTER / 8;
        let length = file.metadata()?.len();
        let mut blocks = BTreeMap::new();
        for (index, at) in (0..).zip(words(file, layout.refcount_table_at, most_blocks)?) {
            if at != 0 {
                blocks.insert(index, checked_offset(at, length)?);
            }
        }
        let mut counts = Self {
            table_at: layout.refcount_table_at,
            most_blocks,
            blocks,
            used: BTreeSet::new(),
            full_below: 0,
        };
        let l1_clusters = (layout.l1_entries * 8).div_ceil(CLUSTER);
        let tables = map.tables.values().map(|table| table.at);
        let data = map.present().filter_map(|(_, cluster)| cluster.offset());
        let blocks: Vec<u64> = counts.blocks.values().copied().collect();
        let single = [0].into_iter().chain(blocks).chain(tables).chain(data).map(|at| at / CLUSTER);
        let first = |at: u64| at / CLUSTER;
        let long = (first(layout.l1_at)..first(layout.l1_at) + l1_clusters).chain(
            first(layout.refcount_table_at)..first(layout.refcount_table_at) + layout.refcount_table_clusters,
        );
        for cluster in single.chain(long) {
            if !counts.used.insert(cluster) {
                return Err(HeaderError::Damaged("two entries point to the same cluster"));
            }
        }
        Ok(counts)
    }

    /// Allocates a cluster, inside the file or at its end.
    pub(super) fn allocate(&mut self) -> Result<u64, HeaderError> {
        let cluster = self.lowest_free();
        let block = cluster / COUNTS;
        if block >= self.most_blocks {
            return Err(HeaderError::Unsupported("more clusters than its refcount tables can hold"));
        }
        self.used.insert(cluster);
        if self.blocks.contains_key(&block) {
            return Ok(cluster * CLUSTER);
        }
        // The first cluster of a new range becomes the block with the counts of that range.
        self.blocks.insert(block, cluster * CLUSTER);
        self.allocate()
    }

    fn lowest_free(&mut self) -> u64 {
        while self.used.contains(&self.full_below) {
            self.full_below += 1;
        }
        self.full_below
    }

    pub(super) fn release(&mut self, at: u64) {
        self.used.remove(&(at / CLUSTER));
        self.full_below = self.full_below.min(at / CLUSTER);
    }

    /// Writes all counts: 1 for used clusters, 0 for the others.
    pub(super) fn write(&self, file: &File) -> Result<(), HeaderError> {
        for (index, at) in &self.blocks {
            let range = index * COUNTS..(index + 1) * COUNTS;
            let mut counts = vec![0u8; CLUSTER as usize];
            for cluster in self.used.range(range.clone()) {
                counts[(cluster - range.start) as usize * 2 + 1] = 1;
            }
            file.write_all_at(&counts, *at)?;
            file.write_all_at(&at.to_be_bytes(), self.table_at + index * 8)?;
        }
        Ok(())
    }

    /// Frees the space of unused clusters.
    pub(super) fn trim(&self, file: &File) -> Result<(), HeaderError> {
        let end = self.used.last().map_or(0, |last| last + 1);
        file.set_len(end * CLUSTER)?;
        let mut free_from = 0;
        for cluster in &self.used {
            if *cluster > free_from {
                punch(file, free_from * CLUSTER, (cluster - free_from) * CLUSTER)?;
            }
            free_from = cluster + 1;
        }
        Ok(())
    }
}

/// On a file system without holes, the space is freed only with the layer.
fn punch(file: &File, at: u64, length: u64) -> Result<(), HeaderError> {
    use rustix::fs::FallocateFlags;
    use rustix::io::Errno;
    match rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, length) {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(HeaderError::Read(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qcow2_header::create_overlay;

    #[test]
    fn new_refcount_block_counts_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.qcow2");
        create_overlay(&path, "none", 10 << 30).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let map = Map::read(&file).unwrap();
        let mut counts = Refcounts::of(&file, &map).unwrap();
        assert_eq!(counts.used.len(), 4, "header, refcount table, block, L1 table");
        counts.used.extend(4..COUNTS);
        assert_eq!(counts.allocate().unwrap(), (COUNTS + 1) * CLUSTER);
        assert_eq!(counts.blocks[&1], COUNTS * CLUSTER);
        // A released cluster is reused first.
        counts.release(9 * CLUSTER);
        assert_eq!(counts.allocate().unwrap(), 9 * CLUSTER);
        counts.write(&file).unwrap();
        let first_counts = words(&file, COUNTS * CLUSTER, 1).unwrap()[0];
        assert_eq!(first_counts, 0x0001_0001_0000_0000, "the block, and the cluster after it");
        assert_eq!(words(&file, map.layout.refcount_table_at, 2).unwrap(), [2 * CLUSTER, COUNTS * CLUSTER]);
    }

    #[test]
    fn trim_cuts_off_unused_clusters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.qcow2");
        create_overlay(&path, "none", 10 << 30).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(20 * CLUSTER).unwrap();
        let counts = Refcounts::of(&file, &Map::read(&file).unwrap()).unwrap();
        counts.trim(&file).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4 * CLUSTER);
    }
}
