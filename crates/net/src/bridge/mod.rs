//! The bridge: VMs on TAP devices at a bridge of the host's kernel, which needs root.
//!
//! The same guard decides as in the gateway. The kernel enforces what can be decided by packets, and we do the rest:
//!
//! ```text
//!            ┌ wiring ─ links, tap, rate ┐        ┌ render ── nft ┐
//! QEMU ─TAP──┤ isolated port, own MAC,   ├─bridge─┤ may it pass?  ├─┬─ relay ──── host's TCP sockets
//!            │ fixed neighbours          │        │ both ways     │ ├─ names, service: the resolver, the daemon
//!            └───────────────────────────┘        └───────────────┘ ├─ forwarded datagrams, masqueraded
//!                                                                   └─ refusals, flows ─ the VM's log
//! ```
//!
//! It shares guard, names, gate, forwards and log with the gateway. All rules that judge are in two tables of our own,
//! rendered from the policies by pure functions and replaced as a whole, so writing them twice, or after a crash, has
//! the same result. A third table counts what passes, for the log.

mod answer;
mod error;
mod flows;
mod guest_to_host;
mod hub;
mod links;
mod name_access;
mod names;
mod nflog;
mod nft;
mod open;
mod port;
mod rate;
mod refusals;
mod relay;
mod render;
mod service;
mod tap;
mod vm;
mod wiring;

#[cfg(test)]
mod tests;

pub use error::BridgeError;
pub use flows::{LogLack, try_flow_log};
pub use open::Bridge;
pub use port::Port;
pub use tap::tap_name;
