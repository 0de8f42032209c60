//! An independent qcow2 implementation for tests: it writes one cluster, or reads one through all layers. It is
//! written from the format's specification, without any of the code under test.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const CLUSTER: u64 = 65536;
const COPIED: u64 = 1 << 63;
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;

pub(crate) struct Qcow2 {
    path: PathBuf,
    file: File,
}

impl Qcow2 {
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        Self { path: path.to_owned(), file }
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_be_bytes(bytes)
    }

    fn set_word(&self, at: u64, value: u64) {
        self.file.write_all_at(&value.to_be_bytes(), at).unwrap();
    }

    fn backing(&self) -> Option<PathBuf> {
        let (at, length) = (self.word(8), self.word(16) >> 32);
        let mut name = vec![0; length as usize];
        self.file.read_exact_at(&mut name, at).unwrap();
        (at != 0).then(|| self.path.with_file_name(String::from_utf8(name).unwrap()))
    }

    /// Extends the file by a cluster, and counts it in the first refcount block.
    fn allocate(&self) -> u64 {
        let at = self.file.metadata().unwrap().len().next_multiple_of(CLUSTER);
        self.file.set_len(at + CLUSTER).unwrap();
        let block = self.word(self.word(48));
        assert!(at / CLUSTER < CLUSTER / 2, "the tests write little");
        self.file.write_all_at(&1u16.to_be_bytes(), block + at / CLUSTER * 2).unwrap();
        at
    }

    fn l2(&self, cluster: u64) -> u64 {
        (self.word(self.word(40) + cluster / 8192 * 8)) & OFFSET
    }

    pub(crate) fn write(&self, cluster: u64, value: u8) {
        let mut l2 = self.l2(cluster);
        if l2 == 0 {
            l2 = self.allocate();
            self.set_word(self.word(40) + cluster / 8192 * 8, l2 | COPIED);
        }
        let entry_at = l2 + cluster % 8192 * 8;
        let place = self.word(entry_at) & OFFSET;
        if value == 0 {
            // Like QEMU, this keeps an existing cluster.
            let kept = if place == 0 { 0 } else { place | COPIED };
            return self.set_word(entry_at, kept | 1);
        }
        let place = if place == 0 { self.allocate() } else { place };
        self.file.write_all_at(&vec![value; CLUSTER as usize], place).unwrap();
        self.set_word(entry_at, place | COPIED);
    }

    /// The value of a cluster, whose bytes must all be equal.
    pub(crate) fn read(&self, cluster: u64) -> u8 {
        let l2 = self.l2(cluster);
        let entry = if l2 == 0 { 0 } else { self.word(l2 + cluster % 8192 * 8) };
        let place = entry & OFFSET;
        if entry & 1 != 0 {
            return 0;
        }
        if place == 0 {
            return self.backing().map_or(0, |below| Self::open(&below).read(cluster));
        }
        let mut bytes = vec![0; CLUSTER as usize];
        self.file.read_exact_at(&mut bytes, place).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "half a cluster in {}", self.path.display());
        bytes[0]
    }
}
