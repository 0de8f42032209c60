//! Files and directories of the host that may go to guests and come from them: those of one directory.
//!
//! A path is resolved by the kernel, beneath that directory: `..`, absolute links and links that lead out of it are
//! refused there, however the directory changes meanwhile. The last part of a path may be no link at all. What comes
//! from a guest is written beside its place and takes it when it is complete.

mod directory;
mod error;
mod slot;

pub use directory::{Source, SourceFile, TransferDir};
pub use error::TransferError;
pub use slot::{FileSlot, TreeSlot};
