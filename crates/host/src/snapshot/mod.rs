//! Snapshots of running VMs: taken, restored and forked.
//!
//! ```text
//! disk only:    sync in the guest ─▶ fresh overlay on top ─▶ done
//! with memory:  sync in the guest ─▶ copy RAM while it runs ─▶ stop ─▶ last pages ─▶ fresh overlay on top ─▶ run
//!               └─ afterwards, without the VM: convert the copy to template form, make it durable
//! ```
//!
//! [`take`] takes snapshots. [`memory`] handles the template form of a VM's memory. [`compact`] frees the space of
//! deleted snapshots. [`compare`] lists the changes since a snapshot. [`error`] has the errors.

pub(crate) mod compact;
pub(crate) mod compare;
mod error;
pub(crate) mod memory;
mod stream;
pub(crate) mod take;

pub use error::SnapshotError;
pub(crate) use stream::bytes_while_copying;
