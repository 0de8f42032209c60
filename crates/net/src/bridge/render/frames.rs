//! At the ports of the bridge: a guest speaks with its own card's address, in its own name, in IPv4 and ARP.

use std::net::Ipv4Addr;

use super::{Ground, Guest, set, target};
use crate::bridge::nft::{Action, At, Chain, ChainKind, Family, Field, Match, SetKind, Table, Value};
use crate::gateway::Limits;

/// Before everything else that looks at frames.
const FIRST: i32 = -300;

/// Bytes in a second for each megabit in it.
const BYTES_PER_MEGABIT: u64 = 125_000;

/// What may exceed the limit at once: a few of the largest packets.
const BURST: u32 = 256 << 10;

/// Frames of one guest in a second, however small they are, as at the gateway.
const FRAMES: u32 = Limits::DEFAULT.frames;

/// Frames that may exceed that at once: a twentieth of a second's worth.
const FRAMES_BURST: u32 = FRAMES / 20;

pub(super) fn table(ground: &Ground, guests: &[Guest]) -> Table {
    let ports = guests.iter().map(|guest| (guest.tap.clone(), target("port", guest)));
    let mut before = Chain::at("before", ChainKind::Filter, At::Prerouting, FIRST);
    before.rule([], Action::Follow(Field::InInterface, "ports".into()));
    // A port whose guest has no rules, or none any more.
    let ours = || Value::interfaces(ground.tap_prefix);
    before.rule([Match::Is(Field::InInterface, ours())], Action::Drop);
    // The host itself would speak IPv6 to the guests.
    let mut output = Chain::at("output", ChainKind::Filter, At::Output, FIRST);
    let is_not = |value| Match::IsNot(Field::EtherType, value);
    let to_guests = Match::Is(Field::OutInterface, ours());
    output.rule([to_guests, is_not(Value::ipv4()), is_not(Value::arp())], Action::Drop);
    let mut chains = vec![before, output];
    chains.extend(guests.iter().map(port));
    Table { family: Family::Bridge, sets: vec![set("ports", SetKind::ByInterface(ports.collect()))], chains }
}

fn port(guest: &Guest) -> Chain {
    let mut chain = Chain::new(format!("port-{}", guest.short));
    chain.rule([Match::IsNot(Field::EtherSource, Value::mac(guest.mac))], Action::Drop);
    chain.rule([Match::TooFast { frames: FRAMES.into(), burst: FRAMES_BURST }], Action::Drop);
    if let Some(megabits) = guest.policy.bandwidth_mbps {
        let bytes = u64::from(megabits).max(1) * BYTES_PER_MEGABIT;
        chain.rule([Match::Beyond { bytes, burst: BURST }], Action::Drop);
    }
    let own = |field| Match::Is(field, Value::address(guest.address));
    let ip = Match::Is(Field::EtherType, Value::ipv4());
    chain.rule([ip, own(Field::SourceAddress)], Action::Accept);
    // Who looks whether an address is taken does not say which one it has.
    for sender in [guest.address, Ipv4Addr::UNSPECIFIED] {
        let arp = Match::Is(Field::EtherType, Value::arp());
        let format = Match::Is(Field::ArpFormat, Value::arp_format());
        let mac = Match::Is(Field::ArpSenderMac, Value::mac(guest.mac));
        let address = Match::Is(Field::ArpSenderAddress, Value::address(sender));
        chain.rule([arp, format, mac, address], Action::Accept);
    }
    chain.rule([], Action::Drop);
    chain
}
