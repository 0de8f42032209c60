//! The environment for storage tests: a backend, and the writes that a VM would do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agentiso_disk::{Backing, Layers};

/// The number of blocks that tests use. They are spread so that the tables of a qcow2 file have several parts.
pub(crate) const BLOCKS: u64 = 12;

pub(crate) const VIRTUAL: u64 = 2 << 30;

/// A map from block to byte; missing blocks are zero.
pub(crate) type Content = BTreeMap<u64, u8>;

pub(crate) trait Lab: Send + Sync + 'static {
    type Backend: Layers;

    fn new() -> Self;

    fn backend(&self) -> Self::Backend;

    /// Makes an empty directory.
    fn directory(&self, name: &str) -> PathBuf;

    /// An image that holds [`image_content`].
    fn image(&self) -> Backing;

    /// Writes as a VM does. Zero is written like a discard.
    fn write(&self, file: &Path, block: u64, value: u8);

    fn read(&self, file: &Path, block: u64) -> u8;

    /// Adds the memory of a snapshot, and returns its size in `sizes`.
    fn add_memory(&self, directory: &Path, name: &str) -> u64;

    /// Begins to write a layer into the one below it, and stops in the middle.
    fn commit_half(&self, child: &Path, into: &Path) {
        for block in (0..BLOCKS).filter(|block| block % 2 == 0) {
            self.write(into, block, self.read(child, block));
        }
    }

    /// Undoes changes that are not certain to be on disk, except those for which `keep` returns true.
    fn power_loss(&self, keep: &mut dyn FnMut() -> bool);

    fn content(&self, file: &Path) -> Content {
        (0..BLOCKS).map(|block| (block, self.read(file, block))).filter(|(_, value)| *value != 0).collect()
    }
}

pub(crate) fn image_content() -> Content {
    [(0, 101), (3, 103), (8, 108)].into_iter().collect()
}
