//! Writes a raw disk as a qcow2 file without another program. The disk's contents come from an archive that may be
//! hostile, and are only copied here.
//!
//! ```text
//! header │ L1 table │ clusters of data, with their L2 table after each 512 MiB │ refcount table │ refcount blocks
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use agentiso_diff::qcow2::{Fields, HEADER_LENGTH};
use agentiso_sys::files::{FileContext, FileError};
use rustix::fs::SeekFrom;

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Entries of an L2 table, of eight bytes each.
const ENTRIES: u64 = CLUSTER / 8;
/// Refcounts in a refcount block, of two bytes each.
const REFCOUNTS_PER_BLOCK: u64 = CLUSTER / 2;
/// The flag of a cluster that has exactly one reference.
const ONE_REFERENCE: u64 = 1 << 63;

/// Writes the content of `raw` to the file `disk`. Zeroes take no space.
pub(crate) fn write(raw: &Path, disk: &Path) -> Result<(), FileError> {
    let source = File::open(raw).at("open", raw)?;
    let target = File::create_new(disk).at("create", disk)?;
    let length = source.metadata().at("inspect", raw)?.len();
    Writer { source: &source, target: &target, length, next: 1 }.run().at("write", disk)
}

struct Writer<'a> {
    source: &'a File,
    target: &'a File,
    length: u64,
    /// The first free cluster.
    next: u64,
}

impl Writer<'_> {
    fn run(mut self) -> io::Result<()> {
        let tables = self.length.div_ceil(ENTRIES * CLUSTER);
        let first_at = self.allocate((tables * 8).div_ceil(CLUSTER));
        let mut first = vec![0; tables as usize];
        for (number, entry) in first.iter_mut().enumerate() {
            let from = number as u64 * ENTRIES * CLUSTER;
            let table = self.copy(from, self.length.min(from + ENTRIES * CLUSTER))?;
            if table.iter().any(|entry| *entry != 0) {
                let at = self.allocate(1);
                self.put(&table, at)?;
                *entry = at | ONE_REFERENCE;
            }
        }
        self.put(&first, first_at)?;
        let (counts_at, counts_clusters) = self.write_refcounts()?;
        self.target.set_len(self.next * CLUSTER)?;
        self.write_header(tables, first_at, counts_at, counts_clusters)?;
        self.target.sync_all()
    }

    /// Allocates clusters and returns where they begin.
    fn allocate(&mut self, clusters: u64) -> u64 {
        let at = self.next * CLUSTER;
        self.next += clusters;
        at
    }

    fn put(&self, words: &[u64], at: u64) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.target.write_all_at(&bytes, at)
    }

    /// Copies a range, and returns its L2 table.
    fn copy(&mut self, from: u64, to: u64) -> io::Result<Vec<u64>> {
        static ZEROES: [u8; CLUSTER as usize] = [0; CLUSTER as usize];
        let mut table = vec![0; ENTRIES as usize];
        let mut at = from;
        while at < to {
            // Holes are skipped.
            at = match rustix::fs::seek(self.source, SeekFrom::Data(at)) {
                Ok(data) => at.max(data / CLUSTER * CLUSTER),
                Err(rustix::io::Errno::NXIO) => break,
                Err(rustix::io::Errno::INVAL) => at,
                Err(error) => return Err(error.into()),
            };
            if at >= to {
                break;
            }
            let mut cluster = vec![0; CLUSTER as usize];
            let length = CLUSTER.min(self.length - at) as usize;
            self.source.read_exact_at(&mut cluster[..length], at)?;
            if cluster != ZEROES {
                let place = self.allocate(1);
                self.target.write_all_at(&cluster, place)?;
                table[((at - from) / CLUSTER) as usize] = place | ONE_REFERENCE;
            }
            at += CLUSTER;
        }
        Ok(table)
    }

    /// Writes a refcount of one for every cluster, including those of the refcount blocks. Returns the position and
    /// length of the refcount table.
    fn write_refcounts(&mut self) -> io::Result<(u64, u64)> {
        let (mut blocks, mut clusters) = (0, 0);
        loop {
            let all = self.next + blocks + clusters;
            let needed = (
                all.div_ceil(REFCOUNTS_PER_BLOCK),
                (all.div_ceil(REFCOUNTS_PER_BLOCK) * 8).div_ceil(CLUSTER),
            );
            if needed == (blocks, clusters) {
                break;
            }
            (blocks, clusters) = needed;
        }
        let table_at = self.allocate(clusters);
        let first = self.allocate(blocks);
        let table: Vec<u64> = (0..blocks).map(|block| first + block * CLUSTER).collect();
        self.put(&table, table_at)?;
        for (block, at) in table.iter().enumerate() {
            let counted = (self.next - block as u64 * REFCOUNTS_PER_BLOCK).min(REFCOUNTS_PER_BLOCK);
            let counts: Vec<u8> = (0..counted).flat_map(|_cluster| 1_u16.to_be_bytes()).collect();
            self.target.write_all_at(&counts, *at)?;
        }
        Ok((table_at, clusters))
    }

    fn write_header(
        &self,
        tables: u64,
        first_at: u64,
        counts_at: u64,
        counts_clusters: u64,
    ) -> io::Result<()> {
        let header = Fields {
            version: 3,
            cluster_bits: CLUSTER_BITS,
            virtual_size: self.length,
            l1_entries: tables as u32,
            l1_at: first_at,
            refcount_table_at: counts_at,
            refcount_table_clusters: counts_clusters as u32,
            // Refcounts of 16 bits.
            refcount_order: 4,
            header_length: HEADER_LENGTH as u32,
            ..Fields::default()
        };
        self.target.write_all_at(&header.to_bytes(), 0)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts the programs that it needs")]
mod tests {
    use std::process::Command;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// The exit status of `qemu-img check` if clusters are leaked and nothing else is wrong.
    const ONLY_UNUSED: i32 = 3;

    fn qemu_img(arguments: &[&str]) -> Option<i32> {
        Command::new("qemu-img").args(arguments).status().ok()?.code()
    }

    /// Writes these pieces to a disk of that size, and has QEMU's own program read it.
    fn round_trip(length: u64, pieces: &[(u64, &[u8])]) {
        if qemu_img(&["--version"]) != Some(0) {
            return agentiso_testkit::record_skip("qemu-img is not installed");
        }
        let dir = tempfile::tempdir().unwrap();
        let (raw, disk) = (dir.path().join("raw"), dir.path().join("disk"));
        let file = File::create_new(&raw).unwrap();
        file.set_len(length).unwrap();
        for (at, bytes) in pieces {
            file.write_all_at(bytes, *at).unwrap();
        }
        write(&raw, &disk).unwrap();
        let [raw, disk] = [&raw, &disk].map(|path| path.to_str().unwrap());
        assert_eq!(qemu_img(&["check", "-q", "-f", "qcow2", disk]), Some(0), "{length}");
        assert_eq!(qemu_img(&["compare", "-q", "-f", "raw", "-F", "qcow2", raw, disk]), Some(0), "{length}");
        // The comparison treats zeroes beyond the end of one disk as equal.
        assert_eq!(std::fs::read(disk).unwrap()[24..32], length.to_be_bytes());
    }

    #[test]
    fn disks_are_read_by_qemu_as_written() {
        let data = vec![7; 3 * CLUSTER as usize];
        round_trip(MIB, &[]);
        round_trip(MIB, &[(0, &data[..1]), (MIB - 1, &data[..1])]);
        round_trip(MIB + 512, &[(MIB, &data[..512])]);
        // Around the end of an L2 table, and in a distant one.
        round_trip(
            5 << 30,
            &[(512 * MIB - CLUSTER, &data), (3 << 30, &data), ((5 << 30) - 4096, &data[..4096])],
        );
    }

    #[test]
    fn many_clusters_need_several_refcount_blocks() {
        if qemu_img(&["--version"]) != Some(0) {
            return agentiso_testkit::record_skip("qemu-img is not installed");
        }
        let dir = tempfile::tempdir().unwrap();
        let (raw, disk) = (dir.path().join("raw"), dir.path().join("disk"));
        std::fs::write(&raw, vec![1; CLUSTER as usize]).unwrap();
        let (source, target) = (File::open(&raw).unwrap(), File::create_new(&disk).unwrap());
        // As after more clusters than one refcount block covers.
        Writer { source: &source, target: &target, length: CLUSTER, next: REFCOUNTS_PER_BLOCK + 9 }
            .run()
            .unwrap();
        let [raw, disk] = [&raw, &disk].map(|path| path.to_str().unwrap());
        assert_eq!(qemu_img(&["check", "-q", "-f", "qcow2", disk]), Some(ONLY_UNUSED));
        assert_eq!(qemu_img(&["compare", "-q", "-f", "raw", "-F", "qcow2", raw, disk]), Some(0));
    }

    #[test]
    fn zeroes_are_not_stored() {
        let dir = tempfile::tempdir().unwrap();
        let (raw, disk) = (dir.path().join("raw"), dir.path().join("disk"));
        std::fs::write(&raw, vec![0; 4 << 20]).unwrap();
        write(&raw, &disk).unwrap();
        // The header, the L1 table, a refcount block and the refcount table.
        assert_eq!(disk.metadata().unwrap().len(), 4 * CLUSTER);
        assert!(write(&raw, &disk).is_err(), "a disk that is there is not written over");
    }
}
