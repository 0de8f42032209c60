//! Merges layers in place: writes their data into the layer below them.
//!
//! ```text
//! 1  write the data to the lower layer's clusters, or to unused ones, and count those as used
//! 2  make the lower layer's tables point to the data
//! 3  free the clusters that are no longer in use
//! ```
//!
//! Each of the first two steps is on disk before the next begins. After an interruption, the lower layer is sound and
//! may hold some of the upper one's data. Seen through the upper layer, nothing has changed, and a repetition
//! completes the merge.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::qcow2_header::{CLUSTER, Header, HeaderError, create_overlay};
use super::qcow2_lock::{refuse_open, refuse_written};
use super::qcow2_map::{Cluster, L2_ENTRIES, Map};
use super::qcow2_refcounts::Refcounts;

pub(super) fn commit(child: &Path, into: &Path) -> Result<(), HeaderError> {
    let upper = Upper::open(child)?;
    refuse_written(&upper.file)?;
    write_into(&[upper], into, &CancellationToken::new())
}

/// Makes a layer with the combined data of several layers, given from the topmost down, on the backing of the lowest
/// one. Returns early when it is stopped.
pub(super) fn combine(of: &[PathBuf], path: &Path, stop: &CancellationToken) -> Result<(), HeaderError> {
    let uppers = of.iter().map(|path| Upper::open(path)).collect::<Result<Vec<_>, _>>()?;
    let lowest = of.last().ok_or(HeaderError::Damaged("no layers given"))?;
    let Header { virtual_size, backing_file } = Header::read(lowest)?;
    let backing_file = backing_file.ok_or(HeaderError::Unsupported("no backing file"))?;
    create_overlay(path, &backing_file, virtual_size)?;
    write_into(&uppers, path, stop)
}

/// Writes the data of the upper layers, given from the topmost down, into a lower one.
fn write_into(uppers: &[Upper], into: &Path, stop: &CancellationToken) -> Result<(), HeaderError> {
    let mut lower = Lower::open(into, uppers)?;
    let length = lower.file.metadata()?.len();
    if let Err(error) = lower.copy_data(uppers, stop) {
        // No table points to the added clusters yet; cutting them off gives a full disk its space back.
        let _ = lower.file.set_len(length);
        return Err(error);
    }
    lower.count_data()?;
    lower.point_to_data()?;
    lower.free_unused()
}

struct Upper {
    file: File,
    map: Map,
}

impl Upper {
    fn open(path: &Path) -> Result<Self, HeaderError> {
        let file = File::open(path)?;
        let map = Map::read(&file)?;
        Ok(Self { file, map })
    }
}

/// The data that is visible through all of them: each cluster from the topmost layer that has an entry for it.
fn visible(uppers: &[Upper]) -> BTreeMap<u64, (&File, Cluster)> {
    let mut seen = BTreeMap::new();
    for upper in uppers.iter().rev() {
        seen.extend(upper.map.present().map(|(number, cluster)| (number, (&upper.file, cluster))));
    }
    seen
}

struct Lower {
    file: File,
    map: Map,
    counts: Refcounts,
    /// Offsets of clusters that are unused after the tables were written.
    unused: Vec<u64>,
    /// Indexes of the L2 tables that were added, and of those that were changed.
    new_tables: BTreeSet<u64>,
    tables: BTreeSet<u64>,
}

impl Lower {
    fn open(path: &Path, uppers: &[Upper]) -> Result<Self, HeaderError> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        refuse_open(&file)?;
        let map = Map::read(&file)?;
        if uppers.iter().any(|upper| upper.map.layout.virtual_size != map.layout.virtual_size) {
            return Err(HeaderError::Unsupported("a size that differs from the layer above it"));
        }
        let counts = Refcounts::of(&file, &map)?;
        Ok(Self {
            file,
            map,
            counts,
            unused: Vec::new(),
            new_tables: BTreeSet::new(),
            tables: BTreeSet::new(),
        })
    }

    fn copy_data(&mut self, uppers: &[Upper], stop: &CancellationToken) -> Result<(), HeaderError> {
        let mut buffer = vec![0; CLUSTER as usize];
        for (number, (upper, cluster)) in visible(uppers) {
            if stop.is_cancelled() {
                return Err(HeaderError::Interrupted);
            }
            let content = match cluster {
                Cluster::Absent | Cluster::Zero(_) => None,
                Cluster::Data(at) => {
                    read_cluster(upper, at, &mut buffer)?;
                    Some(&buffer).filter(|bytes| bytes.iter().any(|byte| *byte != 0))
                }
            };
            let below = self.map.get(number);
            let becomes = match content {
                Some(bytes) => {
                    let at = below.offset().map_or_else(|| self.counts.allocate(), Ok)?;
                    self.file.write_all_at(bytes, at)?;
                    Cluster::Data(at)
                }
                None => {
                    self.unused.extend(below.offset());
                    Cluster::Zero(None)
                }
            };
            if becomes != below {
                self.point(number, becomes)?;
            }
        }
        for index in &self.new_tables {
            self.map.write_table(&self.file, *index)?;
        }
        Ok(())
    }

    fn count_data(&self) -> Result<(), HeaderError> {
        self.counts.write(&self.file)?;
        Ok(self.file.sync_data()?)
    }

    fn point(&mut self, number: u64, to: Cluster) -> Result<(), HeaderError> {
        let index = number / L2_ENTRIES;
        if !self.map.tables.contains_key(&index) {
            self.map.insert_table(index, self.counts.allocate()?);
            self.new_tables.insert(index);
        }
        self.tables.insert(index);
        self.map.set(number, to);
        Ok(())
    }

    fn point_to_data(&self) -> Result<(), HeaderError> {
        for index in self.tables.difference(&self.new_tables) {
            self.map.write_table(&self.file, *index)?;
        }
        for index in &self.new_tables {
            self.map.write_pointer(&self.file, *index)?;
        }
        Ok(self.file.sync_data()?)
    }

    fn free_unused(&mut self) -> Result<(), HeaderError> {
        for at in self.unused.drain(..) {
            self.counts.release(at);
        }
        self.counts.write(&self.file)?;
        // A crash can undo only the freeing of space, and the next merge repeats it.
        self.counts.trim(&self.file)
    }
}

/// Reads a cluster. The last one of a file may be incomplete and is filled with zeroes.
fn read_cluster(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    buffer[filled..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Makes a layer. The value 0 makes a zero cluster without data.
    fn layer(path: &Path, backing: &str, clusters: &[(u64, u8)]) {
        create_overlay(path, backing, 1 << 30).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut map = Map::read(&file).unwrap();
        let mut counts = Refcounts::of(&file, &map).unwrap();
        for (number, value) in clusters {
            let index = number / L2_ENTRIES;
            if !map.tables.contains_key(&index) {
                map.insert_table(index, counts.allocate().unwrap());
            }
            let cluster = match value {
                0 => Cluster::Zero(None),
                value => {
                    let at = counts.allocate().unwrap();
                    file.write_all_at(&[*value; CLUSTER as usize], at).unwrap();
                    Cluster::Data(at)
                }
            };
            map.set(*number, cluster);
            map.write_table(&file, index).unwrap();
            map.write_pointer(&file, index).unwrap();
        }
        counts.write(&file).unwrap();
    }

    /// The content of a layer without those below it.
    fn content(path: &Path) -> BTreeMap<u64, u8> {
        let upper = Upper::open(path).unwrap();
        let mut buffer = vec![0; CLUSTER as usize];
        let value = |(number, cluster)| match cluster {
            Cluster::Data(at) => {
                read_cluster(&upper.file, at, &mut buffer).unwrap();
                (number, buffer[0])
            }
            Cluster::Absent | Cluster::Zero(_) => (number, 0),
        };
        upper.map.present().map(value).collect()
    }

    const LOWER: [(u64, u8); 4] = [(1, 1), (2, 2), (3, 3), (4, 0)];
    const UPPER: [(u64, u8); 6] = [(2, 12), (3, 0), (4, 14), (5, 15), (6, 0), (L2_ENTRIES + 5, 7)];

    /// Two layers that have clusters in common.
    fn pair(dir: &Path) -> (PathBuf, PathBuf) {
        let (into, child) = (dir.join("into.qcow2"), dir.join("child.qcow2"));
        layer(&into, "none.qcow2", &LOWER);
        layer(&child, "into.qcow2", &UPPER);
        (child, into)
    }

    #[test]
    fn interrupted_commit_is_sound_and_repeatable() {
        let whole: BTreeMap<u64, u8> = LOWER.into_iter().chain(UPPER).collect();
        for parts in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let (child, into) = pair(dir.path());
            let uppers = [Upper::open(&child).unwrap()];
            let mut lower = Lower::open(&into, &uppers).unwrap();
            lower.copy_data(&uppers, &CancellationToken::new()).unwrap();
            if parts > 0 {
                lower.count_data().unwrap();
            }
            if parts > 1 {
                lower.point_to_data().unwrap();
            }
            if parts > 2 {
                lower.free_unused().unwrap();
            }
            drop(lower);
            // Clusters that the upper layer does not hide are unchanged, and every used cluster is counted.
            let seen: BTreeMap<u64, u8> = content(&into).into_iter().chain(UPPER).collect();
            assert_eq!(seen, whole, "after {parts} parts");
            let file = File::open(&into).unwrap();
            let map = Map::read(&file).unwrap();
            let mut block = vec![0; CLUSTER as usize];
            file.read_exact_at(&mut block, 2 * CLUSTER).unwrap();
            let offsets = map.present().filter_map(|(_, cluster)| cluster.offset());
            for at in offsets.chain(map.tables.values().map(|table| table.at)) {
                assert_eq!(block[(at / CLUSTER) as usize * 2 + 1], 1, "after {parts} parts");
            }
            commit(&child, &into).unwrap();
            assert_eq!(content(&into), whole, "after {parts} parts");
        }
    }

    #[test]
    fn repeated_commit_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (child, into) = pair(dir.path());
        commit(&child, &into).unwrap();
        let first = std::fs::read(&into).unwrap();
        commit(&child, &into).unwrap();
        assert!(std::fs::read(&into).unwrap() == first);
    }

    #[test]
    fn layers_of_different_sizes_are_not_merged() {
        let dir = tempfile::tempdir().unwrap();
        let (child, _) = pair(dir.path());
        let into = dir.path().join("larger.qcow2");
        create_overlay(&into, "none.qcow2", 2 << 30).unwrap();
        assert!(matches!(commit(&child, &into), Err(HeaderError::Unsupported(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn commit_of_damaged_layers_never_panics(
            part in 0..12u64,
            at in 0..128u64,
            value in prop_oneof![any::<u64>(), (0..9u64).prop_map(|cluster| cluster * CLUSTER)],
            of_child in any::<bool>(),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let (child, into) = pair(dir.path());
            let damaged = if of_child { &child } else { &into };
            let file = OpenOptions::new().write(true).open(damaged).unwrap();
            file.write_all_at(&value.to_be_bytes(), part * CLUSTER + at * 8).unwrap();
            let _ = commit(&child, &into);
        }
    }
}
