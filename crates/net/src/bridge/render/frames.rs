//! Rules at the ports of the bridge: a guest may only send IPv4 and ARP, with its own MAC and IP address.

use std::net::Ipv4Addr;

use super::{BridgeLayout, Guest, set, target};
use crate::bridge::nft::{Action, Chain, ChainKind, Family, Field, HookPoint, Match, SetKind, Table, Value};
use crate::flow::Limits;

/// Priority before everything else that handles frames.
const FIRST: i32 = -300;

/// Bytes per second in one megabit per second.
const BYTES_PER_MEGABIT: u64 = 125_000;

/// Burst above the limit: a few of the largest packets.
const BURST: u32 = 256 << 10;

/// Frames of one guest per second, however small, as at the gateway.
const FRAMES: u32 = Limits::DEFAULT.frames;

/// Burst above that: a twentieth of a second's frames.
const FRAMES_BURST: u32 = FRAMES / 20;

pub(super) fn table(layout: &BridgeLayout, guests: &[Guest]) -> Table {
    let ports = guests.iter().map(|guest| (guest.tap.clone(), target("port", guest)));
    let mut before = Chain::at("before", ChainKind::Filter, HookPoint::Prerouting, FIRST);
    before.rule([], Action::Follow(Field::InInterface, "ports".into()));
    // Drops frames of a port whose guest has no rules.
    let ours = || Value::interfaces(layout.tap_prefix);
    before.rule([Match::Is(Field::InInterface, ours())], Action::Drop);
    // Keeps the host from sending IPv6 to the guests.
    let mut output = Chain::at("output", ChainKind::Filter, HookPoint::Output, FIRST);
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
    // An ARP probe for a free address has no sender address.
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
