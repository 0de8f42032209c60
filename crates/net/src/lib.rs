//! The network of the workspaces.
//!
//! By default it is in user space, without privileges: a workspace's card is a socket to the gateway, which carries
//! what leaves through ordinary sockets of the host. With root it can be a [`bridge`] of the host's kernel instead.
//! Either way every flow is asked about first:
//!
//! ```text
//! guest ──frames── gateway ──┬── rules   may this address be reached, under what name?
//!                            ├── dns     what address has this name, and may it be asked for?
//!                            ├── sniff   whom do the first bytes of a connection name?
//!                            └── log     what was opened, refused, closed
//! ```
//!
//! The guest is hostile: whatever it sends is bounded, parsed without panics, and told apart by its seat alone.

pub mod bridge;
mod budget;
pub mod dns;
pub mod gateway;
mod life;
pub mod log;
mod netlink;
pub mod rules;
pub mod sniff;
