//! The resolver that guests ask. It answers by policy, and what it answers decides what may be reached.
//!
//! ```text
//! query ── wire ── may the name be asked for? ──no── REFUSED, with the reason
//!                          │ yes
//!                     neighbours, cache, or one question upstream however many ask
//!                          │
//!              addresses the guest may not reach are left out; the others are bound to the name ── answer
//! ```
//!
//! A name that leads elsewhere by CNAME counts as the name that was asked for. There is no IPv6 in the workspaces, so
//! AAAA is answered empty; so are HTTPS and SVCB, whose hints and keys would lead around the rules about names.

mod answer;
mod cache;
mod flights;
mod found;
mod resolver;
mod upstream;
pub mod wire;

use std::net::Ipv4Addr;

pub use found::Found;
pub use resolver::Resolver;

use crate::rules::Refusal;

/// Other machines that may be reached by name.
pub trait Neighbours: Send + Sync {
    /// The address of the machine with this host name (one label, lower case), if the guest may reach it.
    fn address_of(&self, host: &str) -> Option<Ipv4Addr>;
}

/// What goes back to the guest, and what the log should say about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub bytes: Vec<u8>,
    pub refused: Option<RefusedName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedName {
    pub name: String,
    pub refusal: Refusal,
}
