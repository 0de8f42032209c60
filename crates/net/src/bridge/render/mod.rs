//! From policies to tables: pure, so that what the kernel will be told can be read and tested without one.
//!
//! ```text
//! frame ── bridge prerouting   whose port, whose MAC, whose address?
//!            │
//! packet ─ ip prerouting ──┬── to the gateway    names, ping, answers to the host
//!            (before NAT)  ├── to a neighbour    if both let each other in
//!                          └── to the outside    the guest's own chain, as `rules/judge.rs` orders it
//!            │
//!          ip NAT          TCP to the relay, names to the resolver
//!            │
//!          ip forward      datagrams out, and back only by the same rules
//!            │
//!          inet forward    what passes is counted, in a table that is not replaced
//! ```
//!
//! Every packet is judged by the rules of the moment, both ways: a flow does not outlive the policy that let it in.

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

/// What is the same for all guests.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    pub(crate) bridge: String,
    pub(crate) gateway: Ipv4Addr,
    pub(crate) subnet: Network,
    /// What the names of all our ports begin with.
    pub(crate) tap_prefix: &'static str,
    /// Our ports on the gateway's address.
    pub(crate) relay_port: u16,
    pub(crate) names_port: u16,
    pub(crate) names_tcp_port: u16,
    pub(crate) services: Vec<ServicePorts>,
    pub(crate) log_group: u16,
    /// Where the kernel tells that it carries something new.
    pub(crate) flows_group: u16,
}

/// One of the daemon's services for guests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServicePorts {
    /// Where guests look for it.
    pub(crate) theirs: u16,
    /// Where we listen.
    pub(crate) ours: u16,
}

/// One guest as the rules see it.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    /// What its chains are called by.
    pub(crate) short: String,
    pub(crate) tap: String,
    pub(crate) mac: [u8; 6],
    pub(crate) address: Ipv4Addr,
    pub(crate) policy: NetworkPolicy,
    pub(crate) groups: BTreeSet<String>,
    pub(crate) named: Vec<Named>,
}

/// What names say about one address: open or shut, at one port or at all that are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) address: Ipv4Addr,
    pub(crate) port: Option<u16>,
    pub(crate) open: bool,
    pub(crate) left: Duration,
}

/// Our tables, for these guests.
pub(crate) fn tables(ground: &Ground, guests: &[Guest]) -> [Table; 2] {
    let mut sets = Vec::new();
    let mut chains = hooks::chains(ground);
    chains.push(hooks::gateway(ground));
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
        chains.push(hooks::refusal(ground, guest));
        chains.push(outside::chain(guest));
        chains.push(back::chain(guest));
    }
    [Table { family: Family::Ip, sets, chains }, frames::table(ground, guests)]
}

/// The elements that names of this guest add to its sets.
pub(crate) fn named_sets(guest: &Guest) -> Vec<Set> {
    outside::named_sets(guest)
}

/// Whether rules about names decide where a guest may go, so that the sets of names exist.
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
