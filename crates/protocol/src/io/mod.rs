//! The link as tokio streams, which HTTP/2 reads and writes.
//!
//! [`LinkStream`] is one connection on either side. The guest's port outlives connections, so [`Acceptor`] owns it
//! between them and gets it back when a stream is dropped.

mod acceptor;
mod core;
mod opener;
mod stream;

pub use acceptor::{AcceptError, Acceptor};
pub use opener::{OpenError, open};
pub use stream::LinkStream;
