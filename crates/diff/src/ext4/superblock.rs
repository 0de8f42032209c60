//! The superblock, which describes the layout of the file system.

use super::error::Ext4Error;
use super::le::{joined, u16_at, u32_at};

/// The position and length of the superblock on every disk.
pub(super) const OFFSET: u64 = 1024;
pub(super) const LENGTH: usize = 1024;

const MAGIC: u16 = 0xEF53;
const JOURNAL: u32 = 0x4;
const RECOVER: u32 = 0x4;
const META_BG: u32 = 0x10;
const BITS_64: u32 = 0x80;
const LARGE_DIRECTORIES: u32 = 0x4000;
const SPARSE_SUPER: u32 = 0x1;
const SPARSE_SUPER_2: u32 = 0x200;

/// Types in directories, extents, multiple mount protection, flexible groups, attributes in inodes, checksum seed, case
/// folding: features that are supported, or irrelevant for reading inodes and names.
const IGNORED: u32 = 0x2 | 0x40 | 0x100 | 0x200 | 0x400 | 0x2000 | 0x20000;

const REFUSED: [(u32, &str); 5] = [
    (0x1, "compression"),
    (0x8, "a journal on another device"),
    (0x1000, "data in directory entries"),
    (0x8000, "data in inodes"),
    (0x10000, "encryption"),
];

/// The most groups: 128 TiB in blocks of 4 KiB. The positions of their tables take 8 MiB of memory.
const MAX_GROUPS: u64 = 1 << 20;

const MAX_BYTES: u64 = 1 << 60;

#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) block_bits: u32,
    pub(super) blocks: u64,
    pub(super) inodes: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inode_size: usize,
    pub(super) groups: u64,
    pub(super) first_data_block: u64,
    pub(super) blocks_per_group: u64,
    pub(super) descriptor_size: u64,
    /// From this block of descriptors on, they are spread over the disk.
    pub(super) first_meta_group: u64,
    pub(super) large_directories: bool,
    /// The journal's inode, if the journal has to be replayed.
    pub(super) recover: Option<u32>,
    sparse: bool,
    sparse_2: Option<[u32; 2]>,
}

impl Superblock {
    pub(super) fn parse(bytes: &[u8; LENGTH]) -> Result<Self, Ext4Error> {
        if u16_at(bytes, 0x38) != MAGIC {
            return Err(Ext4Error::Magic);
        }
        let (compatible, incompatible) = (u32_at(bytes, 0x5C), u32_at(bytes, 0x60));
        refuse_features(incompatible)?;
        let bits_64 = incompatible & BITS_64 != 0;
        let block_bits = 10 + checked("block size", u32_at(bytes, 0x18), |bits| bits <= 6)?;
        let block_size = 1u64 << block_bits;
        let high = if bits_64 { u32_at(bytes, 0x150) } else { 0 };
        let blocks = joined(high, u32_at(bytes, 0x04));
        // Limited so that byte offsets of blocks cannot overflow.
        let blocks = checked("number of blocks", blocks, |blocks| blocks <= MAX_BYTES >> block_bits)?;
        let first_data_block = u64::from(u32_at(bytes, 0x14));
        checked("first block", first_data_block, |first| first < blocks && first <= 1)?;
        let blocks_per_group = checked("size of groups", u32_at(bytes, 0x20), |blocks| blocks >= 64)?.into();
        let groups = (blocks - first_data_block).div_ceil(blocks_per_group);
        checked("number of groups", groups, |groups| groups <= MAX_GROUPS)?;
        let per_group = u64::from(u32_at(bytes, 0x28));
        checked("number of inodes per group", per_group, |inodes| {
            (1..=8 * block_size).contains(&inodes) && inodes * groups >= u32_at(bytes, 0).into()
        })?;
        // The first revision of the format had no field for it.
        let inode_size = if u32_at(bytes, 0x4C) == 0 { 128 } else { u64::from(u16_at(bytes, 0x58)) };
        checked("size of inodes", inode_size, |size| {
            size.is_power_of_two() && (128..=block_size).contains(&size)
        })?;
        let descriptor_size = if bits_64 { u64::from(u16_at(bytes, 0xFE)) } else { 32 };
        checked("size of group descriptors", descriptor_size, |size| {
            size.is_power_of_two() && (if bits_64 { 64 } else { 32 }..=1024).contains(&size)
        })?;
        let meta = incompatible & META_BG != 0;
        Ok(Self {
            block_bits,
            blocks,
            inodes: u32_at(bytes, 0),
            inodes_per_group: per_group as u32,
            inode_size: inode_size as usize,
            groups,
            first_data_block,
            blocks_per_group,
            descriptor_size,
            first_meta_group: if meta { u32_at(bytes, 0x104).into() } else { u64::MAX },
            large_directories: incompatible & LARGE_DIRECTORIES != 0,
            // A journal that needs no recovery is not looked at: the kernel empties it in that case.
            recover: (incompatible & RECOVER != 0 && compatible & JOURNAL != 0).then(|| u32_at(bytes, 0xE0)),
            sparse: u32_at(bytes, 0x64) & SPARSE_SUPER != 0,
            sparse_2: (compatible & SPARSE_SUPER_2 != 0)
                .then(|| [u32_at(bytes, 0x24C), u32_at(bytes, 0x250)]),
        })
    }

    pub(super) fn block_size(&self) -> u64 {
        1 << self.block_bits
    }

    /// Whether a group begins with a copy of the superblock.
    pub(super) fn has_superblock(&self, group: u64) -> bool {
        if group == 0 {
            return true;
        }
        match self.sparse_2 {
            Some(copies) => copies.contains(&(group as u32)),
            None => !self.sparse || group == 1 || [3, 5, 7].iter().any(|&base| is_power(group, base)),
        }
    }
}

fn is_power(mut number: u64, base: u64) -> bool {
    while number > 1 && number.is_multiple_of(base) {
        number /= base;
    }
    number == 1
}

fn refuse_features(incompatible: u32) -> Result<(), Ext4Error> {
    if let Some((_, name)) = REFUSED.iter().find(|(bit, _)| incompatible & bit != 0) {
        return Err(Ext4Error::Unsupported(name));
    }
    match incompatible & !(IGNORED | RECOVER | META_BG | BITS_64 | LARGE_DIRECTORIES) {
        0 => Ok(()),
        unknown => Err(Ext4Error::Features(unknown)),
    }
}

fn checked<N: Copy + Into<u64>>(
    what: &'static str,
    value: N,
    valid: impl Fn(N) -> bool,
) -> Result<N, Ext4Error> {
    if valid(value) { Ok(value) } else { Err(Ext4Error::Superblock { what, value: value.into() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_superblock_groups_are_powers() {
        assert!(
            [1, 3, 5, 7, 9, 25, 27, 49]
                .iter()
                .all(|&group| is_power(group, 3) || is_power(group, 5) || is_power(group, 7))
        );
        assert!(
            [2, 4, 6, 15, 21, 35].iter().all(|&group| [3, 5, 7].iter().all(|&base| !is_power(group, base)))
        );
    }
}
