//! The protocol between host and guest: the link that carries bytes, the schema of calls, error codes and limits.
//!
//! ```text
//!   calls (schema::v1, tonic)
//!   HTTP/2
//!   link (frames, resync)      <- this crate
//!   virtio-serial byte stream
//! ```
//!
//! The link's codec does no I/O; [`io`] wraps it for tokio. Nothing here opens files or sockets or spawns tasks.

pub mod bounds;
pub mod codec;
pub mod error;
pub mod io;
pub mod limits;
pub mod link;
pub mod schema;
pub mod version;

pub use error::ErrorCode;
