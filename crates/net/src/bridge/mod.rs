//! The bridge: machines on TAP devices at a bridge of the host's kernel, which needs root.
//!
//! The same guard decides as in the gateway; the kernel enforces what packets can express, and we do the rest:
//!
//! ```text
//!            ┌ wiring ─ links, tap, rate ┐        ┌ render ── nft ┐
//! QEMU ─TAP──┤ isolated port, own MAC,   ├─bridge─┤ may it pass?  ├─┬─ relay ──── host's TCP sockets
//!            │ fixed neighbours          │        │ both ways     │ ├─ names, service: the resolver, the daemon
//!            └───────────────────────────┘        └───────────────┘ ├─ forwarded datagrams, masqueraded
//!                                                                   └─ refusals, flows ─ the machine's log
//! ```
//!
//! It lives beside the gateway because it shares guard, names, gate, forwards and log with it. All rules that
//! judge are in two tables of our own, rendered from the policies by pure functions and replaced as a whole, so writing them
//! twice, or after a crash, comes to the same. A third one counts what passes, for the log.

mod answer;
mod climb;
mod error;
mod flows;
mod hub;
mod links;
mod named;
mod names;
mod nft;
mod open;
mod place;
mod port;
mod rate;
mod refusals;
mod relay;
mod render;
mod service;
mod settings;
mod tap;
mod told;
mod wiring;

#[cfg(test)]
mod tests;

pub use error::BridgeError;
pub use flows::{LogLack, try_flow_log};
pub use open::Bridge;
pub use port::Port;
pub use settings::BridgeSettings;
pub use tap::tap_name;
