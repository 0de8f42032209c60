//! The messages of a member, for programs in its own machine: plain HTTP at a port of the machine's loopback.
//!
//! ```text
//!  program ── 127.0.0.1:8080 ── guest agent ── attend (while the machine is a member's) ── letterbox ── mail
//! ```
//!
//! Whose machine it is says who speaks, so nobody can write in another's name. What comes from there is untrusted: one
//! request on each connection, a few at once, bounded in size and rate.

mod attend;
mod lent;
mod letterbox;

pub(super) use attend::attend;

/// Where programs find it, from the tool contract. The port is taken only in machines of members.
pub(super) const PORT: u16 = 8080;
