//! The resolver for guests. It answers only what the policy allows, and its answers decide which addresses may be
//! reached.
//!
//! ```text
//! query ── wire ── is the name allowed? ──no── REFUSED, with the reason
//!                          │ yes
//!                     neighbours, cache, or one shared question upstream
//!                          │
//!              addresses the guest may not reach are left out; the others are bound to the name ── answer
//! ```
//!
//! A name with a CNAME counts as the name in the question. There is no IPv6 in the workspaces, so AAAA gets an empty
//! answer; so do HTTPS and SVCB, whose hints and keys would bypass the rules about names.

mod answer;
mod cache;
mod flights;
mod found;
mod names;
mod resolver;
mod upstream;
pub mod wire;

use std::net::Ipv4Addr;

pub use found::Found;
pub use names::Names;
pub use resolver::Resolver;

use crate::policy::Refusal;

/// Other VMs that may be reached by name.
pub trait Neighbours: Send + Sync {
    /// The address of the VM with this host name (one label, lower case), if the guest may reach it.
    fn address_of(&self, host: &str) -> Option<Ipv4Addr>;
}

/// The answer for the guest, and the refusal for the log if there is one.
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
