//! Between guests: through the gateway, because their ports on the bridge are isolated from each other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::{Guest, addresses, set};
use crate::bridge::nft::{Action, Chain, Element, Field, Match, Set, SetKind, Value};

/// Adds the chain in which guests that let each other in find each other.
///
/// Guests stand in circles: all that have `allow_inter_vm` in one, those of each group in another. Who shares a
/// circle may open the ports that the other accepts.
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
    sets.extend(doors(guests));
    chains.push(neighbours);
    chains.push(admit());
}

/// Whoever shares one of these may be reached. A circle of one is none.
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

/// Guests that accept every port, and the ports of the others.
fn doors(guests: &[Guest]) -> [Set; 2] {
    let all = guests.iter().filter(|guest| guest.policy.allowed_ports.is_empty());
    let doors = guests
        .iter()
        .flat_map(|guest| guest.policy.allowed_ports.iter().map(|port| Element::place(guest.address, *port)));
    [
        addresses("all-ports", all.map(|guest| guest.address)),
        set("some-ports", SetKind::Places(doors.collect())),
    ]
}

/// Two guests of one circle. An answer passes by the port that was opened, which is the answering side's.
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
