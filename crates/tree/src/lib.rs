//! Packing of a directory into one tar archive, and unpacking, for transfers between host and guest.
//!
//! One archive instead of single files, because a round trip to an emulated guest costs as much as a hundred kilobytes,
//! and because one stream is either complete or not. Both ends use this crate.
//!
//! Both directions work beneath an open directory and follow no symbolic links: neither those of an archive nor those
//! that another process puts into the directory meanwhile. Unpacking makes only files, directories and symbolic links,
//! and nothing outside of the directory.

mod error;
mod pack;
mod unpack;

pub use error::TreeError;
pub use pack::{Packed, pack};
pub use unpack::{Links, Unpacked, unpack};

/// The deepest nesting of directories. Every level holds a descriptor while it is read or removed.
pub(crate) const MAX_DEPTH: usize = 200;
