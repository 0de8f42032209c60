//! Errors of the file system reader.

use std::io;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum Ext4Error {
    #[error("{length} bytes at {offset} of the disk could not be read: {source}")]
    Read { offset: u64, length: usize, source: io::Error },
    #[error("there is no ext4 file system on the disk")]
    Magic,
    #[error("the file system uses {0}, which is not supported")]
    Unsupported(&'static str),
    #[error("the file system has features that are not known here: {0:#x}")]
    Features(u32),
    #[error("the {what} in the superblock cannot be {value}")]
    Superblock { what: &'static str, value: u64 },
    #[error("group {group} has its inodes at block {block}, which does not exist")]
    Group { group: u64, block: u64 },
    #[error("there is no block {block}")]
    NoBlock { block: u64 },
    #[error("there is no inode {number}")]
    NoInode { number: u32 },
    #[error("inode {number} is wrong: {what}")]
    Inode { number: u32, what: &'static str },
    #[error("the extents of inode {number} are wrong: {what}")]
    Extents { number: u32, what: &'static str },
    #[error("the directory with inode {number} is wrong in its block {block}: {what}")]
    Directory { number: u32, block: u32, what: &'static str },
    #[error("the directory with inode {number} has {size} bytes; at most {limit} are read")]
    DirectorySize { number: u32, size: u64, limit: u64 },
    #[error("the directory with inode {number} is in the tree twice")]
    DirectoryTwice { number: u32 },
    #[error("the journal is wrong: {what}")]
    Journal { what: &'static str },
    #[error("the journal is wrong in its block {block}: {what}")]
    JournalBlock { block: u32, what: &'static str },
}
