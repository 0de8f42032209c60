//! Renders policies as tables, by pure functions, so that the rules can be read and tested without a kernel.
//!
//! ```text
//! frame ── bridge prerouting   check port, MAC and address
//!            │
//! packet ─ ip prerouting ──┬── to the gateway    names, ping, answers to the host
//!            (before NAT)  ├── to a neighbour    if both policies allow it
//!                          └── to the outside    the guest's own chain, as `rules/judge.rs` orders it
//!            │
//!          ip NAT          TCP to the relay, names to the resolver
//!            │
//!          ip forward      datagrams out, and back only by the same rules
//!            │
//!          inet forward    what passes is counted, in a table that is not replaced
//! ```
//!
//! Every packet is judged by the current rules, in both directions: a flow does not outlive the policy that allowed it.

mod back;
pub(crate) mod flows;
mod frames;
mod hooks;
mod neighbours;
mod outside;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use agentiso_core::network::{Network, NetworkPolicy};

use super::nft::{Element, Family, Set, SetKind, Table, Target};

/// Settings that are the same for all guests.
#[derive(Clone, Debug)]
pub(crate) struct BridgeLayout {
    pub(crate) bridge: String,
    pub(crate) gateway: Ipv4Addr,
    pub(crate) subnet: Network,
    /// Prefix of the names of all our ports.
    pub(crate) tap_prefix: &'static str,
    /// Our ports on the gateway's address.
    pub(crate) relay_port: u16,
    pub(crate) names_port: u16,
    pub(crate) names_tcp_port: u16,
    pub(crate) services: Vec<ServicePorts>,
    pub(crate) log_group: u16,
    /// The nflog group for new flows.
    pub(crate) flows_group: u16,
}

/// One of the daemon's services for guests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServicePorts {
    /// The port that guests connect to.
    pub(crate) theirs: u16,
    /// The port that we listen on.
    pub(crate) ours: u16,
}

/// One guest as the rules see it.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    /// The suffix of its chains' names.
    pub(crate) short: String,
    pub(crate) tap: String,
    pub(crate) mac: [u8; 6],
    pub(crate) address: Ipv4Addr,
    pub(crate) policy: NetworkPolicy,
    pub(crate) groups: BTreeSet<String>,
    pub(crate) named: Vec<NamedAddress>,
}

/// An address that is open or shut because of its names, at one port or at all ports that are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedAddress {
    pub(crate) address: Ipv4Addr,
    pub(crate) port: Option<u16>,
    pub(crate) open: bool,
    pub(crate) left: Duration,
}

/// Our tables, for these guests.
pub(crate) fn tables(layout: &BridgeLayout, guests: &[Guest]) -> [Table; 2] {
    let mut sets = Vec::new();
    let mut chains = hooks::chains(layout);
    chains.push(hooks::gateway(layout));
    let by_address =
        |prefix: &str| guests.iter().map(|guest| (guest.address, target(prefix, guest))).collect::<Vec<_>>();
    for (name, prefix) in [("guests", "out"), ("refusals", "refuse"), ("returns", "back")] {
        sets.push(set(name, SetKind::ByAddress(by_address(prefix))));
    }
    neighbours::add(&mut sets, &mut chains, guests);
    chains.push(outside::special());
    chains.push(back::special());
    for guest in guests {
        sets.extend(outside::sets(guest));
        chains.push(hooks::refusal(layout, guest));
        chains.push(outside::chain(guest));
        chains.push(back::chain(guest));
    }
    [Table { family: Family::Ip, sets, chains }, frames::table(layout, guests)]
}

/// The elements that a guest's names add to its sets.
pub(crate) fn named_sets(guest: &Guest) -> Vec<Set> {
    outside::named_sets(guest)
}

/// Whether the policy has rules about names, so that the sets of named addresses exist.
pub(crate) fn names_matter(policy: &NetworkPolicy) -> bool {
    !policy.allow_domains.is_empty() || !policy.deny_domains.is_empty()
}

fn target(prefix: &str, guest: &Guest) -> Target {
    Target(format!("{prefix}-{}", guest.short))
}

fn set(name: impl Into<String>, kind: SetKind) -> Set {
    Set { name: name.into(), timed: false, kind }
}

fn addresses(name: impl Into<String>, addresses: impl IntoIterator<Item = Ipv4Addr>) -> Set {
    set(name, SetKind::Addresses(addresses.into_iter().map(Element::address).collect()))
}
