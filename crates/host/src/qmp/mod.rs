//! QEMU's control protocol: JSON lines over a unix socket.
//!
//! [`wire`] reads and writes lines without I/O, [`client`] runs the conversation, [`migration`] holds the two
//! sequences that save and load a machine's device state.

mod client;
mod migration;
mod wire;

pub use client::{QmpClient, QmpError};
pub use wire::{Event, ShutdownCause};
