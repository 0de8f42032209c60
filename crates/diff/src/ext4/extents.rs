//! Extent trees, which map a file's content to blocks of the disk.

use super::error::Ext4Error;
use super::inode::Inode;
use super::le::{joined, u16_at, u32_at};

const MAGIC: u16 = 0xF30A;
const HEADER: usize = 12;
const ENTRY: usize = 12;

/// The kernel's limit for the depth of a tree.
const MAX_DEPTH: u16 = 5;

/// The most nodes of a tree: more than [`MAX_EXTENTS`] need, and few enough to visit.
const MAX_NODES: usize = 1 << 16;

/// The most extents of one file that are kept: 48 MiB of memory, and a file of 8 GiB in the smallest pieces.
const MAX_EXTENTS: usize = 1 << 21;

/// Longer extents are allocated but not written, and read as zeroes.
const MAX_WRITTEN: u16 = 1 << 15;

/// Consecutive blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block, counted in the file.
    pub logical: u32,
    pub blocks: u32,
    /// The first block, counted on the disk.
    pub physical: u64,
    /// If false, the blocks read as zeroes.
    pub written: bool,
}

/// The state while the tree of one file is read.
pub(super) struct Tree<'a, R> {
    number: u32,
    disk_blocks: u64,
    /// Reads a block of the disk.
    read: &'a R,
    nodes: usize,
    extents: Vec<Extent>,
}

impl<'a, R: Fn(u64) -> Result<Vec<u8>, Ext4Error>> Tree<'a, R> {
    /// All extents of a file, in the order of its content.
    pub(super) fn extents(inode: &Inode, disk_blocks: u64, read: &'a R) -> Result<Vec<Extent>, Ext4Error> {
        if !inode.has_extents() {
            return Err(Ext4Error::Unsupported("files without extents"));
        }
        let mut tree = Self { number: inode.number(), disk_blocks, read, nodes: 0, extents: Vec::new() };
        tree.node(inode.block(), None)?;
        Ok(tree.extents)
    }

    /// Reads a node. Recursion is bounded, since the depth decreases with each level.
    fn node(&mut self, node: &[u8], depth: Option<u16>) -> Result<(), Ext4Error> {
        if u16_at(node, 0) != MAGIC {
            return Err(self.wrong("a node does not begin like one"));
        }
        let (entries, found) = (usize::from(u16_at(node, 2)), u16_at(node, 6));
        if entries > (node.len() - HEADER) / ENTRY {
            return Err(self.wrong("a node has more entries than fit"));
        }
        if depth.map_or(found > MAX_DEPTH, |depth| found != depth) {
            return Err(self.wrong("a node is at the wrong depth"));
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.wrong("there are too many nodes"));
        }
        for entry in node[HEADER..].chunks_exact(ENTRY).take(entries) {
            match found.checked_sub(1) {
                None => self.leaf(entry)?,
                Some(below) => {
                    let block = joined(u16_at(entry, 8), u32_at(entry, 4));
                    if block >= self.disk_blocks {
                        return Err(self.wrong("a node is not on the disk"));
                    }
                    let child = (self.read)(block)?;
                    self.node(&child, Some(below))?;
                }
            }
        }
        Ok(())
    }

    fn leaf(&mut self, entry: &[u8]) -> Result<(), Ext4Error> {
        let (logical, length) = (u32_at(entry, 0), u16_at(entry, 4));
        let physical = joined(u16_at(entry, 6), u32_at(entry, 8));
        let written = length <= MAX_WRITTEN;
        let blocks = u32::from(if written { length } else { length - MAX_WRITTEN });
        let follows = match self.extents.last() {
            Some(last) => u64::from(last.logical) + u64::from(last.blocks) <= logical.into(),
            None => true,
        };
        if blocks == 0 || !follows {
            return Err(self.wrong("they overlap"));
        }
        if physical + u64::from(blocks) > self.disk_blocks {
            return Err(self.wrong("one is not on the disk"));
        }
        if self.extents.len() == MAX_EXTENTS {
            return Err(self.wrong("there are too many"));
        }
        self.extents.push(Extent { logical, blocks, physical, written });
        Ok(())
    }

    fn wrong(&self, what: &'static str) -> Ext4Error {
        Ext4Error::Extents { number: self.number, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose inode has these extents: logical block, length, physical block.
    fn read(extents: &[(u32, u16, u32)]) -> Result<Vec<Extent>, Ext4Error> {
        let mut record = vec![0; 128];
        record[..2].copy_from_slice(&0o100_644u16.to_le_bytes());
        record[0x1A] = 1;
        record[0x20..0x24].copy_from_slice(&0x80000u32.to_le_bytes());
        record[0x28..0x2C].copy_from_slice(&[0x0A, 0xF3, extents.len() as u8, 0]);
        for (at, (logical, length, physical)) in (0x28 + HEADER..).step_by(ENTRY).zip(extents) {
            record[at..at + 4].copy_from_slice(&logical.to_le_bytes());
            record[at + 4..at + 6].copy_from_slice(&length.to_le_bytes());
            record[at + 8..at + 12].copy_from_slice(&physical.to_le_bytes());
        }
        let inode = Inode::parse(12, record.into(), 0, 128, false).expect("it is in use");
        Tree::extents(&inode, 1000, &|block| Err(Ext4Error::NoBlock { block }))
    }

    #[test]
    fn extents_must_be_ordered_and_on_disk() {
        let found = read(&[(0, 2, 10), (5, (1 << 15) + 3, 20)]).unwrap();
        let first = Extent { logical: 0, blocks: 2, physical: 10, written: true };
        assert_eq!(found, [first, Extent { logical: 5, blocks: 3, physical: 20, written: false }]);
        for wrong in [[(0, 2, 10), (1, 1, 20)], [(5, 1, 10), (0, 1, 20)], [(0, 1, 10), (1, 0, 20)]] {
            assert!(
                matches!(read(&wrong), Err(Ext4Error::Extents { what: "they overlap", .. })),
                "{wrong:?}"
            );
        }
        assert!(matches!(
            read(&[(0, 2, 999)]),
            Err(Ext4Error::Extents { what: "one is not on the disk", .. })
        ));
    }
}
