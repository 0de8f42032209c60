//! QEMU's control protocol: JSON lines over a unix socket.
//!
//! [`wire`] reads and writes lines without I/O, [`client`] runs the connection, [`migration`] holds the sequences that
//! save and load a VM, [`block`] those that change the layers of its disk while it runs.

mod block;
mod client;
mod fdset;
mod migration;
mod wire;

pub use block::DiskNode;
pub(crate) use block::node_name;
pub use client::{QmpClient, QmpError};
pub use migration::{LONGEST_PAUSE, Layout};
pub use wire::{Event, ShutdownCause};
