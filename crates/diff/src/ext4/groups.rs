//! Group descriptors, which contain the position of each group's inode table.

use super::error::Ext4Error;
use super::le::{joined, u32_at};
use super::superblock::Superblock;

/// Reads the position of every group's inode table, in bytes.
pub(super) fn inode_tables(
    superblock: &Superblock,
    read: impl Fn(u64, &mut [u8]) -> Result<(), Ext4Error>,
) -> Result<Box<[u64]>, Ext4Error> {
    let block_size = superblock.block_size();
    let per_block = block_size / superblock.descriptor_size;
    let table_bytes = u64::from(superblock.inodes_per_group) * superblock.inode_size as u64;
    let table_blocks = table_bytes.div_ceil(block_size);
    let mut tables = Vec::new();
    let mut block = vec![0; block_size as usize];
    for group in 0..superblock.groups {
        if group.is_multiple_of(per_block) {
            read(descriptor_block(superblock, group / per_block, per_block) * block_size, &mut block)?;
        }
        let at = (group % per_block * superblock.descriptor_size) as usize;
        let descriptor = &block[at..at + superblock.descriptor_size as usize];
        let high = if superblock.descriptor_size >= 64 { u32_at(descriptor, 0x28) } else { 0 };
        let table = joined(high, u32_at(descriptor, 0x08));
        if table.checked_add(table_blocks).is_none_or(|end| end > superblock.blocks) {
            return Err(Ext4Error::Group { group, block: table });
        }
        tables.push(table * block_size);
    }
    Ok(tables.into())
}

/// The block with the `index`th part of the descriptors: after the superblock, or, in file systems that grew far, in
/// the first group that it describes.
fn descriptor_block(superblock: &Superblock, index: u64, per_block: u64) -> u64 {
    if index < superblock.first_meta_group {
        return superblock.first_data_block + 1 + index;
    }
    let group = index * per_block;
    let first = superblock.first_data_block + group * superblock.blocks_per_group;
    first + u64::from(superblock.has_superblock(group))
}
