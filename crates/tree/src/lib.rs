//! Directories on their way between host and guest: one tar archive, whatever is in them.
//!
//! An archive and not file by file, because a round trip to an emulated guest costs as much as a hundred kilobytes, and
//! because it is one stream that ends once: complete or not at all. Both ends use this crate.
//!
//! Both work beneath an open directory and follow no symbolic link: not those of an archive, and not those that somebody
//! puts into the directory meanwhile. What comes out of an archive is files, directories and symbolic links, and
//! nothing outside of the directory.

mod error;
mod pack;
mod unpack;

pub use error::TreeError;
pub use pack::{Packed, pack};
pub use unpack::{Links, Unpacked, unpack};

/// Directories within each other. Every level holds a descriptor while it is read, or removed.
pub(crate) const MAX_DEPTH: usize = 200;
