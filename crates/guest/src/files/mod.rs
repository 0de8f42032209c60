//! Operations on files and directories: read, write, edit, list, pack and unpack.
//!
//! Everything here blocks, so it runs on separate threads. The queues between these and the connection are bounded.

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
pub use list::{ListFilter, list};
pub use path::GuestPath;
pub use read::read;
pub use tree::{read_tree, write_tree};
pub use write::{Piece, write};

pub(crate) use replace::replace_file;
