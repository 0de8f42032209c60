//! Rules between guests. Their packets pass through the gateway, because their ports on the bridge are isolated from
//! each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::{Guest, addresses, set};
use crate::bridge::nft::{Action, Chain, Element, Field, Match, Set, SetKind, Value};

/// Adds the chain that admits packets between guests.
///
/// Guests belong to circles: all guests with `allow_inter_vm` form one, and those of each group another. A guest may
/// open the ports that another one of the same circle accepts.
pub(super) fn add(sets: &mut Vec<Set>, chains: &mut Vec<Chain>, guests: &[Guest]) {
    let mut neighbours = Chain::new("neighbours");
    for (index, circle) in circles(guests).into_iter().enumerate() {
        let name = format!("circle-{index}");
        let both = [
            Match::Among(Field::SourceAddress, name.clone()),
            Match::Among(Field::TargetAddress, name.clone()),
        ];
        neighbours.rule(both, Action::Jump("admit".into()));
        sets.push(addresses(name, circle));
    }
    neighbours.rule([], Action::Goto("refused".into()));
    sets.extend(accepted_ports(guests));
    chains.push(neighbours);
    chains.push(admit());
}

/// The circles of guests that may reach each other. Circles of one guest are left out.
fn circles(guests: &[Guest]) -> Vec<BTreeSet<Ipv4Addr>> {
    let open = guests.iter().filter(|guest| guest.policy.allow_inter_vm).map(|guest| guest.address);
    let mut circles = vec![open.collect::<BTreeSet<_>>()];
    let mut groups: BTreeMap<&str, BTreeSet<Ipv4Addr>> = BTreeMap::new();
    for guest in guests {
        for group in &guest.groups {
            groups.entry(group).or_default().insert(guest.address);
        }
    }
    circles.extend(groups.into_values());
    circles.retain(|circle| circle.len() > 1);
    circles
}

/// The set of guests that accept every port, and the set of the others' ports.
fn accepted_ports(guests: &[Guest]) -> [Set; 2] {
    let all = guests.iter().filter(|guest| guest.policy.allowed_ports.is_empty());
    let accepted_ports = guests.iter().flat_map(|guest| {
        guest.policy.allowed_ports.iter().map(|port| Element::endpoint(guest.address, *port))
    });
    [
        addresses("all-ports", all.map(|guest| guest.address)),
        set("some-ports", SetKind::Endpoints(accepted_ports.collect())),
    ]
}

/// The chain for two guests of one circle. An answer is matched by the opened port, which is on the answering side.
fn admit() -> Chain {
    let protocol = |number| Match::Is(Field::Protocol, Value::protocol(number));
    let is_not = |number| Match::IsNot(Field::Protocol, Value::protocol(number));
    let mut chain = Chain::new("admit");
    chain.rule([protocol(Value::ICMP)], Action::Accept);
    chain.rule([is_not(Value::TCP), is_not(Value::UDP)], Action::Return);
    for (direction, address, port) in [
        (Value::original(), Field::TargetAddress, Field::TargetPort),
        (Value::reply(), Field::SourceAddress, Field::SourcePort),
    ] {
        let goes = || Match::Is(Field::Direction, direction.clone());
        chain.rule([goes(), Match::Among(address, "all-ports".into())], Action::Accept);
        chain.rule([goes(), Match::PairAmong(address, port, "some-ports".into())], Action::Accept);
    }
    chain
}
