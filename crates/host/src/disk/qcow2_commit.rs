//! Writes what layers hold into the layer below them, in place.
//!
//! ```text
//! 1  data goes to where the lower layer has it, or to clusters that are not in use; those are counted as used
//! 2  the lower layer's tables point to the data
//! 3  what is no longer in use is given back
//! ```
//!
//! The first two are on disk before the next begins. Cut short in between, the lower layer is sound and may hold some of the
//! upper one's data; whoever reads it through the upper one sees no difference, and doing it again completes it.

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
    take(&[upper], into, &CancellationToken::new())
}

/// Makes a layer that holds what several do, the topmost first, and lies on what the lowest of them lies on. Ends soon
/// when it is stopped.
pub(super) fn combine(of: &[PathBuf], path: &Path, stop: &CancellationToken) -> Result<(), HeaderError> {
    let uppers = of.iter().map(|path| Upper::open(path)).collect::<Result<Vec<_>, _>>()?;
    let lowest = of.last().ok_or(HeaderError::Damaged("there are none"))?;
    let Header { virtual_size, backing_file } = Header::read(lowest)?;
    let backing_file = backing_file.ok_or(HeaderError::Unsupported("nothing below it"))?;
    create_overlay(path, &backing_file, virtual_size)?;
    take(&uppers, path, stop)
}

/// Writes what the upper layers hold, the topmost first, into a lower one.
fn take(uppers: &[Upper], into: &Path, stop: &CancellationToken) -> Result<(), HeaderError> {
    let mut lower = Lower::open(into, uppers)?;
    let length = lower.file.metadata()?.len();
    if let Err(error) = lower.take_data(uppers, stop) {
        // Nothing points to what was added; a full disk gets it back.
        let _ = lower.file.set_len(length);
        return Err(error);
    }
    lower.count_data()?;
    lower.point_to_data()?;
    lower.give_back()
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

/// What is seen through all of them: for each cluster, the topmost that says something about it.
fn seen(uppers: &[Upper]) -> BTreeMap<u64, (&File, Cluster)> {
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
    /// Places that hold nothing once the tables are written.
    unused: Vec<u64>,
    /// L2 tables that were added, by index, and those that were changed.
    new_tables: BTreeSet<u64>,
    tables: BTreeSet<u64>,
}

impl Lower {
    fn open(path: &Path, uppers: &[Upper]) -> Result<Self, HeaderError> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        refuse_open(&file)?;
        let map = Map::read(&file)?;
        if uppers.iter().any(|upper| upper.map.layout.virtual_size != map.layout.virtual_size) {
            return Err(HeaderError::Unsupported("another size than the layer on it"));
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

    fn take_data(&mut self, uppers: &[Upper], stop: &CancellationToken) -> Result<(), HeaderError> {
        let mut buffer = vec![0; CLUSTER as usize];
        for (number, (upper, cluster)) in seen(uppers) {
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
                    let at = below.place().map_or_else(|| self.counts.allocate(), Ok)?;
                    self.file.write_all_at(bytes, at)?;
                    Cluster::Data(at)
                }
                None => {
                    self.unused.extend(below.place());
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

    fn give_back(&mut self) -> Result<(), HeaderError> {
        for at in self.unused.drain(..) {
            self.counts.release(at);
        }
        self.counts.write(&self.file)?;
        // What of this a crash takes back is only space, and found again by the next merge.
        self.counts.trim(&self.file)
    }
}

/// Reads a cluster, of which the end may be missing at the end of the file.
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

    /// Makes a layer; a cluster of zeroes is written as none.
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

    /// What a layer itself holds.
    fn held(path: &Path) -> BTreeMap<u64, u8> {
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
    fn cut_short_after_any_part_the_lower_layer_is_sound_and_the_rest_can_be_done() {
        let whole: BTreeMap<u64, u8> = LOWER.into_iter().chain(UPPER).collect();
        for parts in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let (child, into) = pair(dir.path());
            let uppers = [Upper::open(&child).unwrap()];
            let mut lower = Lower::open(&into, &uppers).unwrap();
            lower.take_data(&uppers, &CancellationToken::new()).unwrap();
            if parts > 0 {
                lower.count_data().unwrap();
            }
            if parts > 1 {
                lower.point_to_data().unwrap();
            }
            if parts > 2 {
                lower.give_back().unwrap();
            }
            drop(lower);
            // What the upper layer does not hide is as it was, and everything in use is counted.
            let seen: BTreeMap<u64, u8> = held(&into).into_iter().chain(UPPER).collect();
            assert_eq!(seen, whole, "after {parts} parts");
            let file = File::open(&into).unwrap();
            let map = Map::read(&file).unwrap();
            let mut block = vec![0; CLUSTER as usize];
            file.read_exact_at(&mut block, 2 * CLUSTER).unwrap();
            let places = map.present().filter_map(|(_, cluster)| cluster.place());
            for at in places.chain(map.tables.values().map(|table| table.at)) {
                assert_eq!(block[(at / CLUSTER) as usize * 2 + 1], 1, "after {parts} parts");
            }
            commit(&child, &into).unwrap();
            assert_eq!(held(&into), whole, "after {parts} parts");
        }
    }

    #[test]
    fn doing_it_again_changes_nothing() {
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
        fn damage_is_an_error_and_never_a_panic(
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
