//! Rules for one guest's packets to the outside, in the order of `rules/judge.rs`.

use std::collections::BTreeSet;

use agentiso_core::network::{CidrRule, DomainRule, NetworkPolicy, RulePorts, never_public_networks};

use super::{Guest, NamedAddress, names_matter, set};
use crate::bridge::nft::{Action, Chain, Element, Field, Match, Set, SetKind, Value};

/// The fields of a packet that describe the remote side, and the action for a packet that may not pass.
pub(super) struct RemoteSide {
    pub(super) address: Field,
    pub(super) port: Field,
    pub(super) special: &'static str,
    pub(super) refuse: Action,
}

/// Most connections of one guest that the kernel tracks at once. Its table is for the whole host, and a guest must not
/// fill it.
pub(super) const CONNECTIONS: u32 = 4096;

/// The chain that judges a guest's packets.
pub(super) fn chain(guest: &Guest) -> Chain {
    let refuse = Action::Goto(format!("refuse-{}", guest.short));
    let mut chain = Chain::new(format!("out-{}", guest.short));
    let new = Match::Is(Field::State, Value::new_connection());
    chain.rule([new, Match::TooMany { connections: CONNECTIONS }], refuse.clone());
    chain.rule([], Action::Jump("inner".into()));
    let is_not = |number| Match::IsNot(Field::Protocol, Value::protocol(number));
    chain.rule([is_not(Value::TCP), is_not(Value::UDP)], refuse.clone());
    let remote =
        RemoteSide { address: Field::TargetAddress, port: Field::TargetPort, special: "special", refuse };
    judge(&mut chain, guest, &remote);
    chain
}

/// Adds the rules that judge the remote address and port.
pub(super) fn judge(chain: &mut Chain, guest: &Guest, remote: &RemoteSide) {
    let policy = &guest.policy;
    let refuse = || remote.refuse.clone();
    if !reaches_anything(policy) {
        chain.rule([], refuse());
        return;
    }
    for (index, rule) in policy.deny_cidrs.iter().enumerate() {
        chain.rule(matches(rule, remote, || format!("deny-{index}-{}", guest.short)), refuse());
    }
    if names_matter(policy) {
        by_name(chain, guest, remote, false);
    }
    let allow = |(index, rule): (usize, &CidrRule)| {
        (matches(rule, remote, || format!("allow-{index}-{}", guest.short)), rule.is_narrow())
    };
    let (narrow, wide): (Vec<_>, Vec<_>) =
        policy.allow_cidrs.iter().enumerate().map(allow).partition(|(_, narrow)| *narrow);
    for (matches, _) in narrow {
        chain.rule(matches, Action::Accept);
    }
    chain.rule([], Action::Jump(remote.special.to_owned()));
    let udp = || Match::Is(Field::Protocol, Value::protocol(Value::UDP));
    // Datagrams name no host, so if names are denied they may only go to addresses with a rule of their own.
    let nameless = match denied_ports(policy).as_deref() {
        None => Some(vec![udp()]),
        Some([]) => None,
        Some([port]) => Some(vec![udp(), Match::Is(remote.port, Value::port(*port))]),
        Some(_) => Some(vec![udp(), Match::Among(remote.port, nameless_set(guest))]),
    };
    if let Some(matches) = nameless {
        chain.rule(matches, refuse());
    }
    for (matches, _) in wide {
        chain.rule(matches, Action::Accept);
    }
    // QUIC hides the name it goes to.
    if !policy.allow_internet && !policy.allow_domains.is_empty() {
        for port in [80, 443] {
            chain.rule([udp(), Match::Is(remote.port, Value::port(port))], refuse());
        }
    }
    if names_matter(policy) {
        by_name(chain, guest, remote, true);
    }
    chain.rule([], if policy.allow_internet { Action::Accept } else { refuse() });
}

/// The chain that refuses addresses that are not public, unless an earlier rule allowed them.
pub(super) fn special() -> Chain {
    let mut chain = Chain::new("special");
    for network in never_public_networks() {
        chain.rule([Match::Within(Field::TargetAddress, network)], Action::Goto("refused".into()));
    }
    chain.rule([Match::Is(Field::TargetKind, Value::local())], Action::Goto("refused".into()));
    chain
}

fn reaches_anything(policy: &NetworkPolicy) -> bool {
    policy.allow_internet || !policy.allow_domains.is_empty() || !policy.allow_cidrs.is_empty()
}

/// The ports at which names are denied. `None`: all ports.
fn denied_ports(policy: &NetworkPolicy) -> Option<Vec<u16>> {
    let rules = || policy.deny_domains.iter().map(DomainRule::ports);
    let listed: BTreeSet<u16> = rules().flat_map(RulePorts::iter).collect();
    (!rules().any(RulePorts::is_all)).then(|| listed.into_iter().collect())
}

fn nameless_set(guest: &Guest) -> String {
    format!("nameless-{}", guest.short)
}

fn by_name(chain: &mut Chain, guest: &Guest, remote: &RemoteSide, open: bool) {
    let action = if open { Action::Accept } else { remote.refuse.clone() };
    let [endpoints, addresses] = set_names(guest, open);
    chain.rule([Match::PairAmong(remote.address, remote.port, endpoints)], action.clone());
    chain.rule([Match::Among(remote.address, addresses)], action);
}

fn matches(rule: &CidrRule, remote: &RemoteSide, ports: impl FnOnce() -> String) -> Vec<Match> {
    let mut matches = vec![Match::Within(remote.address, rule.network())];
    let listed: Vec<u16> = rule.ports().iter().collect();
    match listed[..] {
        [] => {}
        [port] => matches.push(Match::Is(remote.port, Value::port(port))),
        [..] => matches.push(Match::Among(remote.port, ports())),
    }
    matches
}

/// The sets that a guest's rules use.
pub(super) fn sets(guest: &Guest) -> Vec<Set> {
    let policy = &guest.policy;
    let mut sets = Vec::new();
    let mut add = |kind: &str, index: usize, ports: &RulePorts| {
        if ports.iter().nth(1).is_some() {
            let name = format!("{kind}-{index}-{}", guest.short);
            sets.push(set(name, SetKind::Ports(ports.iter().collect())));
        }
    };
    if reaches_anything(policy) {
        policy.deny_cidrs.iter().enumerate().for_each(|(index, rule)| add("deny", index, rule.ports()));
        policy.allow_cidrs.iter().enumerate().for_each(|(index, rule)| add("allow", index, rule.ports()));
        if let Some(ports) = denied_ports(policy).filter(|ports| ports.len() > 1) {
            sets.push(set(nameless_set(guest), SetKind::Ports(ports)));
        }
        if names_matter(policy) {
            sets.extend(named_sets(guest));
        }
    }
    sets
}

/// The four sets of addresses that names have opened and shut, at one port or at all.
pub(super) fn named_sets(guest: &Guest) -> Vec<Set> {
    let element = |named: &NamedAddress| Element {
        address: named.address,
        port: named.port.unwrap_or(0),
        left: Some(named.left),
    };
    let pick = |open: bool, at_port: bool| {
        let fitting = guest.named.iter().filter(|n| n.open == open && n.port.is_some() == at_port);
        fitting.map(element).collect::<Vec<_>>()
    };
    let both = |open: bool| {
        let [endpoints, addresses] = set_names(guest, open);
        [
            Set { name: endpoints, timed: true, kind: SetKind::Endpoints(pick(open, true)) },
            Set { name: addresses, timed: true, kind: SetKind::Addresses(pick(open, false)) },
        ]
    };
    [both(true), both(false)].into_iter().flatten().collect()
}

fn set_names(guest: &Guest, open: bool) -> [String; 2] {
    let word = if open { "open" } else { "shut" };
    [format!("{word}-ports-{}", guest.short), format!("{word}-{}", guest.short)]
}
