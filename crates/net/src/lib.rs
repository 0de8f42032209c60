//! The network of the workspaces, in user space: no privileges, no bridge, no rules in the host's kernel.
//!
//! A workspace's card is a socket to the gateway, which carries what leaves through ordinary sockets of the host.
//! Every flow is asked about first:
//!
//! ```text
//! guest ──frames── gateway ──┬── rules   may this address be reached, under what name?
//!                            ├── dns     what address has this name, and may it be asked for?
//!                            ├── sniff   whom do the first bytes of a connection name?
//!                            └── log     what was opened, refused, closed
//! ```
//!
//! The guest is hostile: whatever it sends is bounded, parsed without panics, and told apart by its seat alone.

pub mod dns;
pub mod gateway;
pub mod log;
pub mod rules;
pub mod sniff;
