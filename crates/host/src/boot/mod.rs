//! Bringing a machine up: the sockets and the process ([`launch`]), the guest until it is a machine of its own
//! ([`rise`]), and the order in which the ways to do it are tried ([`ladder`]).
//!
//! Every step's product owns what it made and undoes it when dropped, so a boot that fails or is cancelled
//! leaves nothing behind.

mod error;
pub(crate) mod ladder;
pub(crate) mod launch;
pub(crate) mod rise;
mod stuck;

pub use error::BootError;
