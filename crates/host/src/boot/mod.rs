//! Brings a VM up: the sockets and the process ([`launch`]), the guest up to its own identity ([`bring_up`]), and the
//! order in which the ways to do it are tried ([`ladder`]). [`has_init`] checks an image beforehand.
//!
//! The result of every step owns what it made and undoes it when dropped, so a boot that fails or is cancelled leaves
//! nothing behind.

pub(crate) mod bring_up;
mod console;
mod equipment;
mod error;
mod init;
pub(crate) mod ladder;
pub(crate) mod launch;
pub(crate) mod layers;
mod stuck;

pub use error::BootError;
pub(crate) use init::refuse_missing_init;
pub use init::{IMAGE_INIT, LookError, has_init};
