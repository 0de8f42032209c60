//! Snapshots of machines: taken while they run, gone back to, branched off into other machines.
//!
//! ```text
//! disk only:    sync in the guest ─▶ fresh overlay on top ─▶ done
//! with memory:  copy RAM while it runs ─▶ stop ─▶ last pages ─▶ fresh overlay on top ─▶ run
//!               └─ afterwards, without the machine: turn the copy into template form, make it durable
//! ```
//!
//! [`take`] does that, [`memory`] is the template form of a machine's memory, [`compact`] gives back what deleted
//! snapshots held, [`compare`] says what changed since, [`error`] what can go wrong.

pub(crate) mod compact;
pub(crate) mod compare;
mod error;
pub(crate) mod memory;
mod stream;
pub(crate) mod take;

pub use compare::Comparison;
pub use error::SnapshotError;
pub(crate) use stream::bytes_while_copying;
