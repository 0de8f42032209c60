//! Writes what a layer holds into the layer below it, in place.
//!
//! ```text
//! 1  data goes to where the lower layer has it, or to clusters that are not in use; those are counted as used
//! 2  the lower layer's tables point to the data
//! 3  what is no longer in use is given back
//! ```
//!
//! Each part is on disk before the next begins. Cut short in between, the lower layer is sound and may hold some of the
//! upper one's data; whoever reads it through the upper one sees no difference, and doing it again completes it.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::qcow2_header::{CLUSTER, HeaderError};
use super::qcow2_map::{Cluster, L2_ENTRIES, Map};
use super::qcow2_refcounts::Refcounts;

pub(super) fn commit(child: &Path, into: &Path) -> Result<(), HeaderError> {
    let upper_file = File::open(child)?;
    let upper = Map::read(&upper_file)?;
    let file = OpenOptions::new().read(true).write(true).open(into)?;
    let map = Map::read(&file)?;
    if upper.layout.virtual_size != map.layout.virtual_size {
        return Err(HeaderError::Unsupported("another size than the layer on it"));
    }
    let length = file.metadata()?.len();
    let counts = Refcounts::of(&file, &map)?;
    let mut lower =
        Lower { file, map, counts, unused: Vec::new(), new_tables: BTreeSet::new(), tables: BTreeSet::new() };
    if let Err(error) = lower.take_data(&upper_file, &upper) {
        // Nothing points to what was added; a full disk gets it back.
        let _ = lower.file.set_len(length);
        return Err(error);
    }
    lower.count_data()?;
    lower.point_to_data()?;
    lower.give_back()
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
    fn take_data(&mut self, upper_file: &File, upper: &Map) -> Result<(), HeaderError> {
        let mut buffer = vec![0; CLUSTER as usize];
        for (number, cluster) in upper.present() {
            let content = match cluster {
                Cluster::Absent | Cluster::Zero(_) => None,
                Cluster::Data(at) => {
                    read_cluster(upper_file, at, &mut buffer)?;
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
        self.counts.trim(&self.file)?;
        Ok(self.file.sync_data()?)
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
