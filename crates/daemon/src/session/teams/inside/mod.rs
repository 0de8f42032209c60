//! The inbox of a member, for programs in its own VM: plain HTTP at a port of the guest's loopback.
//!
//! ```text
//!  program ── 127.0.0.1:8080 ── guest agent ── attend (while the VM runs) ── inbox server ── mail
//! ```
//!
//! The VM that a request comes from identifies the sender, so no program can write in another member's name. Requests
//! from there are untrusted: one on each connection, a few connections at once, bounded in size and rate.

mod attend;
mod inbox_server;
mod lent_messages;

pub(super) use attend::attend;

/// Port for programs in the VM, from the tool contract. It is taken only in VMs of members.
pub(super) const PORT: u16 = 8080;
