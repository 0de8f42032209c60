//! A file that is written from beginning to end, with pages of zeroes as holes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// The smallest hole that file systems make.
const PAGE: usize = 4096;

static ZEROES: [u8; PAGE] = [0; PAGE];

#[derive(Debug)]
pub(super) struct SparseFile {
    file: File,
    at: u64,
}

impl SparseFile {
    /// Fails if the file exists.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self { file, at: 0 })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut from = 0;
        while from < bytes.len() {
            let data = run(&bytes[from..], false);
            self.file.write_all_at(&bytes[from..from + data], self.at + from as u64)?;
            from += data;
            from += run(&bytes[from..], true);
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Makes the file durable.
    pub(super) fn finish(self) -> io::Result<()> {
        self.file.set_len(self.at)?;
        self.file.sync_all()
    }
}

/// The length of the leading run of pages that are all zeroes, or that are not.
fn run(bytes: &[u8], zeroes: bool) -> usize {
    let pages = bytes.chunks(PAGE).take_while(|page| ZEROES.starts_with(page) == zeroes);
    pages.map(<[u8]>::len).sum()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sparse_file_stores_zeroes_as_holes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut file = SparseFile::create(&path).unwrap();
        for _ in 0..64 {
            file.write(&vec![0; 1 << 20]).unwrap();
        }
        file.write(b"end").unwrap();
        file.finish().unwrap();
        let meta = path.metadata().unwrap();
        assert_eq!(meta.len(), (64 << 20) + 3);
        assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    }

    proptest! {
        #[test]
        fn sparse_file_round_trips_any_content(runs in proptest::collection::vec((0usize..20_000, 0u8..2), 0..12)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            let mut file = SparseFile::create(&path).unwrap();
            let mut all = Vec::new();
            for (length, byte) in runs {
                let run = vec![byte; length];
                file.write(&run).unwrap();
                all.extend(run);
            }
            file.finish().unwrap();
            prop_assert!(std::fs::read(&path).unwrap() == all);
        }
    }
}
