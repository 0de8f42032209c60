//! The network of the workspaces.
//!
//! By default it runs in user space without privileges: a VM's network card is a socket to the gateway, which carries
//! outgoing traffic through ordinary sockets of the host. With root it can be a [`bridge`] of the host's kernel
//! instead. Either way the policy decides about every flow before it passes:
//!
//! ```text
//! guest ──frames── gateway ──┬── rules   decides whether an address may be reached, and by which name
//!                            ├── dns     resolves names that the policy allows
//!                            ├── sniff   finds the host name in the first bytes of a connection
//!                            └── log     records flows that were opened, refused or closed
//! ```
//!
//! The guest is untrusted: everything it sends is bounded, parsed without panics, and attributed to a VM only by the
//! socket or TAP device that it arrived on.

pub mod bridge;
mod budget;
pub mod dns;
pub mod gateway;
pub mod log;
mod netlink;
pub mod rules;
pub mod sniff;
mod task_group;
