//! The chains at which packets enter, and rules that are the same for all guests.

use agentiso_core::network::unreachable_networks;

use super::{BridgeLayout, Guest, ServicePorts};
use crate::bridge::nft::{Action, Chain, ChainKind, Field, HookPoint, Match, Value};

/// Before address translation, so that targets are those that the guest chose; after connection tracking.
const BEFORE_NAT: i32 = -150;
const DESTINATION_NAT: i32 = -100;
const FILTER: i32 = 0;
const SOURCE_NAT: i32 = 100;

/// The gateway's port for DNS.
const NAMES: u16 = 53;

/// The chains at which packets enter, and those they go to first.
pub(super) fn chains(layout: &BridgeLayout) -> Vec<Chain> {
    let ours = || Value::interface(&layout.bridge);
    let inside = |field| Match::Is(field, ours());
    let outside = |field| Match::IsNot(field, ours());
    let tcp = || Match::Is(Field::Protocol, Value::protocol(Value::TCP));
    let to_gateway = || Match::Is(Field::TargetAddress, Value::address(layout.gateway));
    let to_subnet = || Match::Within(Field::TargetAddress, layout.subnet);

    let mut before = Chain::at("before", ChainKind::Filter, HookPoint::Prerouting, BEFORE_NAT);
    before.rule([inside(Field::InInterface)], Action::Goto("from-guests".into()));

    let mut from = Chain::new("from-guests");
    from.rule([], Action::Follow(Field::SourceAddress, "guests".into()));
    from.rule([], Action::Drop);

    // Packets that return from here are for the outside.
    let mut inner = Chain::new("inner");
    inner.rule([to_gateway()], Action::Goto("gateway".into()));
    inner.rule([to_subnet()], Action::Goto("neighbours".into()));
    for network in unreachable_networks() {
        inner.rule([Match::Within(Field::TargetAddress, network)], Action::Goto("refused".into()));
    }

    let mut refused = Chain::new("refused");
    refused.rule([], Action::Follow(Field::SourceAddress, "refusals".into()));
    refused.rule([], Action::Drop);

    let mut relay = Chain::at("relay", ChainKind::Nat, HookPoint::Prerouting, DESTINATION_NAT);
    relay.rule([outside(Field::InInterface)], Action::Return);
    for (protocol, ours) in [(Value::UDP, layout.names_port), (Value::TCP, layout.names_tcp_port)] {
        let protocol = Match::Is(Field::Protocol, Value::protocol(protocol));
        let port = Match::Is(Field::TargetPort, Value::port(NAMES));
        relay.rule([to_gateway(), protocol, port], Action::Redirect { port: ours });
    }
    for ServicePorts { theirs, ours } in &layout.services {
        let port = Match::Is(Field::TargetPort, Value::port(*theirs));
        relay.rule([to_gateway(), tcp(), port], Action::Redirect { port: *ours });
    }
    relay.rule([to_subnet()], Action::Return);
    relay.rule([tcp()], Action::Redirect { port: layout.relay_port });

    let mut forward = Chain::at("forward", ChainKind::Filter, HookPoint::Forward, FILTER);
    forward.rule([inside(Field::InInterface), inside(Field::OutInterface)], Action::Accept);
    // TCP leaves only through the relay; a segment that belongs to no connection has bypassed it.
    forward.rule([inside(Field::InInterface), tcp()], Action::Drop);
    forward.rule([inside(Field::InInterface)], Action::Accept);
    forward.rule([outside(Field::OutInterface)], Action::Return);
    let reply = Match::Is(Field::Direction, Value::reply());
    forward.rule([reply], Action::Follow(Field::TargetAddress, "returns".into()));
    forward.rule([], Action::Drop);

    // Neighbours are reached through the gateway; the kernel's ICMP redirects would point to a direct path that does
    // not exist.
    let mut output = Chain::at("output", ChainKind::Filter, HookPoint::Output, FILTER);
    let icmp = Match::Is(Field::Protocol, Value::protocol(Value::ICMP));
    let redirect = Match::Is(Field::IcmpType, Value::redirect_message());
    output.rule([inside(Field::OutInterface), icmp, redirect], Action::Drop);

    let mut leave = Chain::at("leave", ChainKind::Nat, HookPoint::Postrouting, SOURCE_NAT);
    let from_subnet = Match::Within(Field::SourceAddress, layout.subnet);
    leave.rule([from_subnet, outside(Field::OutInterface)], Action::Masquerade);

    vec![before, from, inner, refused, relay, forward, output, leave]
}

/// The chain for packets to the gateway's own address.
pub(super) fn gateway(layout: &BridgeLayout) -> Chain {
    let protocol = |number| Match::Is(Field::Protocol, Value::protocol(number));
    let names = || Match::Is(Field::TargetPort, Value::port(NAMES));
    let mut chain = Chain::new("gateway");
    let ping = Match::Is(Field::IcmpType, Value::echo_request());
    chain.rule([protocol(Value::ICMP), ping], Action::Accept);
    chain.rule([protocol(Value::UDP), names()], Action::Accept);
    chain.rule([protocol(Value::TCP), names()], Action::Accept);
    for ServicePorts { theirs, .. } in &layout.services {
        let port = Match::Is(Field::TargetPort, Value::port(*theirs));
        chain.rule([protocol(Value::TCP), port], Action::Accept);
    }
    // Answers on connections that the host opened into the guest, for forwards.
    chain.rule([Match::Is(Field::Direction, Value::reply())], Action::Accept);
    chain.rule([protocol(Value::ICMP)], Action::Drop);
    chain.rule([], Action::Goto("refused".into()));
    chain
}

/// Refusals of one guest that are logged per second, so that a guest cannot evict other records with them.
const TOLD: u64 = 50;

/// The chain that refuses a packet: logs it to us and answers the guest at once.
pub(super) fn refusal(layout: &BridgeLayout, guest: &Guest) -> Chain {
    let mut chain = Chain::new(format!("refuse-{}", guest.short));
    chain.rule([Match::AtMost { packets: TOLD }], Action::Log { group: layout.log_group });
    chain.rule([Match::Is(Field::Protocol, Value::protocol(Value::TCP))], Action::Reset);
    chain.rule([], Action::Prohibit);
    chain
}
