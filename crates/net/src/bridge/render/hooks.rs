//! Where packets enter our chains, and what is the same for all guests.

use agentiso_core::network::unreachable_networks;

use super::{Ground, Guest, ServicePorts};
use crate::bridge::nft::{Action, At, Chain, ChainKind, Field, Match, Value};

/// Before address translation, so that targets are those that the guest chose; behind connection tracking.
const BEFORE_NAT: i32 = -150;
const DESTINATION_NAT: i32 = -100;
const FILTER: i32 = 0;
const SOURCE_NAT: i32 = 100;

/// Names are asked for at this port of the gateway.
const NAMES: u16 = 53;

/// The chains at which packets enter, and those they go to first.
pub(super) fn chains(ground: &Ground) -> Vec<Chain> {
    let ours = || Value::interface(&ground.bridge);
    let inside = |field| Match::Is(field, ours());
    let outside = |field| Match::IsNot(field, ours());
    let tcp = || Match::Is(Field::Protocol, Value::protocol(Value::TCP));
    let to_gateway = || Match::Is(Field::TargetAddress, Value::address(ground.gateway));
    let to_subnet = || Match::Within(Field::TargetAddress, ground.subnet);

    let mut before = Chain::at("before", ChainKind::Filter, At::Prerouting, BEFORE_NAT);
    before.rule([inside(Field::InInterface)], Action::Goto("from-guests".into()));

    let mut from = Chain::new("from-guests");
    from.rule([], Action::Follow(Field::SourceAddress, "guests".into()));
    from.rule([], Action::Drop);

    // What comes back from here is for the outside.
    let mut inner = Chain::new("inner");
    inner.rule([to_gateway()], Action::Goto("gateway".into()));
    inner.rule([to_subnet()], Action::Goto("neighbours".into()));
    for network in unreachable_networks() {
        inner.rule([Match::Within(Field::TargetAddress, network)], Action::Goto("refused".into()));
    }

    let mut refused = Chain::new("refused");
    refused.rule([], Action::Follow(Field::SourceAddress, "refusals".into()));
    refused.rule([], Action::Drop);

    let mut relay = Chain::at("relay", ChainKind::Nat, At::Prerouting, DESTINATION_NAT);
    relay.rule([outside(Field::InInterface)], Action::Return);
    for (protocol, ours) in [(Value::UDP, ground.names_port), (Value::TCP, ground.names_tcp_port)] {
        let protocol = Match::Is(Field::Protocol, Value::protocol(protocol));
        let port = Match::Is(Field::TargetPort, Value::port(NAMES));
        relay.rule([to_gateway(), protocol, port], Action::Redirect { port: ours });
    }
    for ServicePorts { theirs, ours } in &ground.services {
        let port = Match::Is(Field::TargetPort, Value::port(*theirs));
        relay.rule([to_gateway(), tcp(), port], Action::Redirect { port: *ours });
    }
    relay.rule([to_subnet()], Action::Return);
    relay.rule([tcp()], Action::Redirect { port: ground.relay_port });

    let mut forward = Chain::at("forward", ChainKind::Filter, At::Forward, FILTER);
    forward.rule([inside(Field::InInterface), inside(Field::OutInterface)], Action::Accept);
    // TCP leaves through the relay alone; a segment that belongs to no connection has not been there.
    forward.rule([inside(Field::InInterface), tcp()], Action::Drop);
    forward.rule([inside(Field::InInterface)], Action::Accept);
    forward.rule([outside(Field::OutInterface)], Action::Return);
    let reply = Match::Is(Field::Direction, Value::reply());
    forward.rule([reply], Action::Follow(Field::TargetAddress, "returns".into()));
    forward.rule([], Action::Drop);

    // A neighbour is reached through the gateway; the kernel would tell guests of a shorter way that there is not.
    let mut output = Chain::at("output", ChainKind::Filter, At::Output, FILTER);
    let icmp = Match::Is(Field::Protocol, Value::protocol(Value::ICMP));
    let redirect = Match::Is(Field::IcmpType, Value::redirect_message());
    output.rule([inside(Field::OutInterface), icmp, redirect], Action::Drop);

    let mut leave = Chain::at("leave", ChainKind::Nat, At::Postrouting, SOURCE_NAT);
    let from_subnet = Match::Within(Field::SourceAddress, ground.subnet);
    leave.rule([from_subnet, outside(Field::OutInterface)], Action::Masquerade);

    vec![before, from, inner, refused, relay, forward, output, leave]
}

/// What the gateway's own address answers to.
pub(super) fn gateway(ground: &Ground) -> Chain {
    let protocol = |number| Match::Is(Field::Protocol, Value::protocol(number));
    let names = || Match::Is(Field::TargetPort, Value::port(NAMES));
    let mut chain = Chain::new("gateway");
    let ping = Match::Is(Field::IcmpType, Value::echo_request());
    chain.rule([protocol(Value::ICMP), ping], Action::Accept);
    chain.rule([protocol(Value::UDP), names()], Action::Accept);
    chain.rule([protocol(Value::TCP), names()], Action::Accept);
    for ServicePorts { theirs, .. } in &ground.services {
        let port = Match::Is(Field::TargetPort, Value::port(*theirs));
        chain.rule([protocol(Value::TCP), port], Action::Accept);
    }
    // What the host opened into a guest: a port that leads there.
    chain.rule([Match::Is(Field::Direction, Value::reply())], Action::Accept);
    chain.rule([protocol(Value::ICMP)], Action::Drop);
    chain.rule([], Action::Goto("refused".into()));
    chain
}

/// Refusals of one guest that are told about in a second. A guest must not wash away with them what else happened.
const TOLD: u64 = 50;

/// Refuses so that the guest knows at once, and tells us.
pub(super) fn refusal(ground: &Ground, guest: &Guest) -> Chain {
    let mut chain = Chain::new(format!("refuse-{}", guest.short));
    chain.rule([Match::AtMost { packets: TOLD }], Action::Log { group: ground.log_group });
    chain.rule([Match::Is(Field::Protocol, Value::protocol(Value::TCP))], Action::Reset);
    chain.rule([], Action::Prohibit);
    chain
}
