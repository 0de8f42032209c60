//! Reader for an ext4 file system on the disk of a VM that may have it mounted.
//!
//! ```text
//! superblock ─▶ group descriptors ─▶ inode tables ─▶ extents ─▶ directories, symbolic links, data
//!      └─ needs recovery? ─▶ journal ─▶ blocks that replace those on the disk, kept in memory
//! ```
//!
//! The reader sees the file system as a mount after a crash would: the disk with all complete transactions of its
//! journal. The disk itself is never written. Checksums decide which transactions are complete; those of other metadata
//! are not checked, since a wrong pointer only leads to an error here. Every number is checked before it is used, and
//! everything that could grow has a limit, because the guest wrote all of it.

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
