//! Files and directories: read and written in chunks, edited, listed.
//!
//! Everything here blocks and runs on threads of its own; what passes between them and the connection is bounded.

mod edit;
mod error;
mod info;
mod list;
mod parents;
mod path;
mod read;
mod replace;
mod tree;
mod write;

pub use edit::edit;
pub use error::FileError;
pub use info::stat;
pub use list::{Wanted, list};
pub use path::GuestPath;
pub use read::read;
pub use tree::{read_tree, write_tree};
pub use write::{Piece, write};

pub(crate) use replace::replace_file;
