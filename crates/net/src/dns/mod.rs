//! The resolver that guests ask: names by policy, answers bound to addresses.

use std::net::Ipv4Addr;

/// Other machines that may be reached by name.
pub trait Neighbours: Send + Sync {
    /// The address of the machine with this host name (one label, lower case), if the guest may reach it.
    fn address_of(&self, host: &str) -> Option<Ipv4Addr>;
}
