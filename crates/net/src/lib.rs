//! The network of the workspaces.
//!
//! By default it runs in user space without privileges: a VM's network card is a socket to the [`gateway`], which
//! carries outgoing traffic through ordinary sockets of the host. With root it can be a [`bridge`] of the host's kernel
//! instead. Either way the policy decides about every flow before it passes:
//!
//! ```text
//! guest ──┬─ gateway ─┬─ flow ──┬─ policy   decides what may be reached, from addresses and the names that were shown
//!         └─ bridge ──┘         └─ dns      resolves the names that the policy allows
//!              └─ netlink                   tells the host's kernel
//! ```
//!
//! A module uses only those to its right, and neither backend uses the other.
//!
//! The guest is untrusted: everything it sends is bounded, parsed without panics, and attributed to a VM only by the
//! socket or TAP device that it arrived on.

pub mod bridge;
pub mod dns;
pub mod flow;
pub mod gateway;
mod netlink;
pub mod policy;
