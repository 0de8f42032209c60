//! What names say about an address, in terms of ports: what the sets of addresses in the rules are filled with.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use agentiso_core::network::NetworkPolicy;

use super::render::{Named, names_matter};
use crate::rules::{Guard, RefusalCode, Transport, Verdict};

/// What names say about one address: open or shut, at one port or at all that are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    port: Option<u16>,
    open: bool,
}

impl Said {
    pub(super) fn about(self, address: Ipv4Addr, left: Duration) -> Named {
        Named { address, port: self.port, open: self.open, left }
    }
}

/// What the guard says about an address at every port. It is asked once for each port that any rule mentions, and
/// once for a port that none does, which stands for all others.
pub(super) fn of(guard: &Guard, policy: &NetworkPolicy, address: Ipv4Addr) -> Vec<Said> {
    if !names_matter(policy) {
        return Vec::new();
    }
    let domains = policy.allow_domains.iter().chain(&policy.deny_domains);
    let mentioned: BTreeSet<u16> = domains.flat_map(|rule| rule.ports().iter()).collect();
    let networks = policy.allow_cidrs.iter().chain(&policy.deny_cidrs);
    let others: BTreeSet<u16> = networks.flat_map(|rule| rule.ports().iter()).collect();
    let unmentioned = (1..=u16::MAX).find(|port| !mentioned.contains(port) && !others.contains(port));
    let judge = |port: u16| says(guard, SocketAddrV4::new(address, port));
    let elsewhere = unmentioned.and_then(judge);
    let at_ports = mentioned.into_iter().filter_map(|port| {
        let here = judge(port);
        here.filter(|_| here != elsewhere).map(|open| Said { port: Some(port), open })
    });
    elsewhere.map(|open| Said { port: None, open }).into_iter().chain(at_ports).collect()
}

/// Whether names open or shut this place; `None` if they say nothing about it.
fn says(guard: &Guard, to: SocketAddrV4) -> Option<bool> {
    match guard.judge(Transport::Tcp, to) {
        Verdict::Allowed { .. } => Some(true),
        Verdict::Refused(refusal) => (refusal.code == RefusalCode::DeniedName).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::HostAddresses;
    use agentiso_core::network::DomainName;
    use serde_json::json;

    const THERE: Ipv4Addr = Ipv4Addr::new(9, 9, 9, 9);

    fn said(policy: serde_json::Value, name: &str) -> Vec<(Option<u16>, bool)> {
        let policy: NetworkPolicy = serde_json::from_value(policy).unwrap();
        let guard = Guard::new(policy.clone(), HostAddresses::fixed([]), Ipv4Addr::new(10, 42, 0, 1));
        guard.bind(&DomainName::parse(name).unwrap(), THERE, Duration::from_secs(60));
        of(&guard, &policy, THERE).iter().map(|n| (n.port, n.open)).collect()
    }

    #[test]
    fn a_name_opens_its_address_at_the_ports_of_its_rule() {
        assert_eq!(said(json!({"allow_domains": ["a.example"]}), "a.example"), [(None, true)]);
        let some = json!({"allow_domains": ["a.example:80,443"]});
        assert_eq!(said(some.clone(), "a.example"), [(Some(80), true), (Some(443), true)]);
        assert_eq!(said(some, "b.example"), []);
    }

    #[test]
    fn a_denied_name_shuts_its_address_even_where_the_internet_is_open() {
        let all = json!({"allow_internet": true, "deny_domains": ["a.example"]});
        assert_eq!(said(all, "a.example"), [(None, false)]);
        let one = json!({"allow_internet": true, "deny_domains": ["a.example:25"]});
        assert_eq!(said(one, "a.example"), [(None, true), (Some(25), false)]);
    }

    #[test]
    fn without_rules_about_names_they_say_nothing() {
        assert_eq!(said(json!({"allow_internet": true}), "a.example"), []);
    }
}
