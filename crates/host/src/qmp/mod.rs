//! QEMU's control protocol: JSON lines over a unix socket.
//!
//! [`wire`] reads and writes lines without I/O, [`client`] runs the conversation, [`migration`] holds the sequences
//! that save and load a machine, [`block`] those that change what its disk is made of while it runs.

mod block;
mod client;
mod given;
mod migration;
mod wire;

pub use block::DiskNode;
pub(crate) use block::node_name;
pub use client::{QmpClient, QmpError};
pub use migration::{LONGEST_PAUSE, Layout};
pub use wire::{Event, ShutdownCause};
