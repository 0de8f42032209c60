//! An ext4 file system, read from the disk of a machine that may have it mounted.
//!
//! ```text
//! superblock ─▶ group descriptors ─▶ inode tables ─▶ extents ─▶ directories, symbolic links, data
//!      └─ needs recovery? ─▶ journal ─▶ blocks that replace those on the disk, kept in memory
//! ```
//!
//! What is read is the file system as a mount after a crash would find it: the disk with all complete transactions of
//! its journal. The disk itself is never written. Checksums decide which transactions are complete; those of other
//! metadata are not looked at, since a wrong pointer ends in an error here and nowhere else. Every number is checked
//! before it is used, and everything that could grow has a bound, because the guest wrote it all.

mod crc32c;
mod directory;
mod error;
mod extents;
mod filesystem;
mod groups;
mod inode;
mod journal;
mod le;
mod lookup;
mod superblock;

pub use directory::{Entries, Entry};
pub use error::Ext4Error;
pub use extents::Extent;
pub use filesystem::{FileSystem, ROOT_INODE};
pub use inode::{Inode, Kind};
