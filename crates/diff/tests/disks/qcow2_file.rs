//! Hand-made qcow2 files, also with content that QEMU would not write.

use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Debug)]
pub(crate) enum Cluster {
    Zero,
    /// Zeroes, with a preallocated cluster in the file.
    ZeroWithPlace,
    /// Filled with one byte.
    Data(u8),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct Qcow2File {
    pub(crate) cluster_bits: u32,
    pub(crate) size: u64,
    pub(crate) backing: Option<String>,
    pub(crate) clusters: BTreeMap<u64, Cluster>,
}

impl Qcow2File {
    pub(crate) fn new(cluster_bits: u32, size: u64) -> Self {
        Self { cluster_bits, size, backing: None, clusters: BTreeMap::new() }
    }

    pub(crate) fn on(mut self, backing: &str) -> Self {
        self.backing = Some(backing.to_owned());
        self
    }

    pub(crate) fn with(mut self, index: u64, cluster: Cluster) -> Self {
        self.clusters.insert(index, cluster);
        self
    }

    /// A file with the clusters in which two disks of the same size differ.
    pub(crate) fn between(old: &[u8], new: &[u8]) -> Self {
        let mut file = Self::new(16, new.len() as u64);
        for (index, (old, new)) in (0..).zip(old.chunks(1 << 16).zip(new.chunks(1 << 16))) {
            if old != new {
                file.clusters.insert(index, Cluster::Bytes(new.to_vec()));
            }
        }
        file
    }

    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, self.bytes()).unwrap();
    }

    /// The bytes of the file: header, L1 table, then L2 tables and data in order of use.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let cluster = 1usize << self.cluster_bits;
        let per_table = cluster as u64 / 8;
        let l1_entries = self.size.div_ceil(cluster as u64 * per_table);
        let l1_clusters = (l1_entries as usize * 8).div_ceil(cluster).max(1);
        let mut file = vec![0; (1 + l1_clusters) * cluster];
        self.write_header(&mut file, l1_entries as u32);
        let mut tables: BTreeMap<u64, usize> = BTreeMap::new();
        for (&index, content) in &self.clusters {
            let table = *tables.entry(index / per_table).or_insert_with(|| {
                let place = file.len();
                file.resize(place + cluster, 0);
                put(&mut file, cluster + (index / per_table) as usize * 8, 1 << 63 | place as u64);
                place
            });
            let place = file.len();
            let entry = match content {
                Cluster::Zero => 1,
                Cluster::ZeroWithPlace => {
                    file.resize(place + cluster, 0xEE);
                    1 << 63 | place as u64 | 1
                }
                Cluster::Data(byte) => {
                    file.resize(place + cluster, *byte);
                    1 << 63 | place as u64
                }
                Cluster::Bytes(bytes) => {
                    file.extend(bytes);
                    file.resize(place + cluster, 0);
                    1 << 63 | place as u64
                }
            };
            put(&mut file, table + (index % per_table) as usize * 8, entry);
        }
        file
    }

    fn write_header(&self, file: &mut [u8], l1_entries: u32) {
        file[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
        if let Some(name) = &self.backing {
            put(file, 8, 136);
            file[16..20].copy_from_slice(&(name.len() as u32).to_be_bytes());
            file[136..136 + name.len()].copy_from_slice(name.as_bytes());
        }
        file[20..24].copy_from_slice(&self.cluster_bits.to_be_bytes());
        put(file, 24, self.size);
        file[36..40].copy_from_slice(&l1_entries.to_be_bytes());
        put(file, 40, 1 << self.cluster_bits);
        file[96..100].copy_from_slice(&4u32.to_be_bytes());
        file[100..104].copy_from_slice(&104u32.to_be_bytes());
    }
}

pub(crate) fn put(file: &mut [u8], at: usize, value: u64) {
    file[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
