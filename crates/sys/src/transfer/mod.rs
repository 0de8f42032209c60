//! Moves files and directories between guests and one directory of the host, the transfer directory.
//!
//! The kernel resolves every path beneath that directory: `..` that leads out of it and symbolic links are refused
//! there, even if the directory changes meanwhile. Files from a guest are written under a temporary name beside their
//! destination and renamed when they are complete.

mod directory;
mod error;
mod slot;

pub use directory::{Source, SourceFile, TransferDir};
pub use error::TransferError;
pub use slot::{FileSlot, TreeSlot};
