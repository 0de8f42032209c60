//! Bringing a machine up: the sockets and the process ([`launch`]), the guest until it is a machine of its own
//! ([`rise`]), and the order in which the ways to do it are tried ([`ladder`]). [`has_init`] looks into an image beforehand.
//!
//! Every step's product owns what it made and undoes it when dropped, so a boot that fails or is cancelled
//! leaves nothing behind.

mod console;
mod equipment;
mod error;
mod init;
pub(crate) mod ladder;
pub(crate) mod launch;
pub(crate) mod layers;
pub(crate) mod rise;
mod stuck;

pub use error::BootError;
pub(crate) use init::refuse_missing_init;
pub use init::{IMAGE_INIT, LookError, has_init};
