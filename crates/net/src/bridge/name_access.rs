//! Translates rules about names into ports of an address, for the sets of addresses in the packet rules.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use agentiso_core::network::NetworkPolicy;

use super::render::{NamedAddress, names_matter};
use crate::policy::{Guard, RefusalCode, Transport, Verdict};

/// Whether an address is open or shut because of its names, at one port or at all ports that are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortAccess {
    port: Option<u16>,
    open: bool,
}

impl PortAccess {
    pub(super) fn at(self, address: Ipv4Addr, left: Duration) -> NamedAddress {
        NamedAddress { address, port: self.port, open: self.open, left }
    }
}

/// The access to an address at every port. The guard is asked once for each port that any rule mentions, and once for a
/// port that none mentions, which stands for all others.
pub(super) fn port_access(guard: &Guard, policy: &NetworkPolicy, address: Ipv4Addr) -> Vec<PortAccess> {
    if !names_matter(policy) {
        return Vec::new();
    }
    let domains = policy.allow_domains.iter().chain(&policy.deny_domains);
    let mentioned: BTreeSet<u16> = domains.flat_map(|rule| rule.ports().iter()).collect();
    let networks = policy.allow_cidrs.iter().chain(&policy.deny_cidrs);
    let others: BTreeSet<u16> = networks.flat_map(|rule| rule.ports().iter()).collect();
    let unmentioned = (1..=u16::MAX).find(|port| !mentioned.contains(port) && !others.contains(port));
    let judge = |port: u16| opened_by_name(guard, SocketAddrV4::new(address, port));
    let elsewhere = unmentioned.and_then(judge);
    let at_ports = mentioned.into_iter().filter_map(|port| {
        let here = judge(port);
        here.filter(|_| here != elsewhere).map(|open| PortAccess { port: Some(port), open })
    });
    elsewhere.map(|open| PortAccess { port: None, open }).into_iter().chain(at_ports).collect()
}

/// Whether names open (`true`) or shut (`false`) this destination; `None` if no name decides about it.
fn opened_by_name(guard: &Guard, to: SocketAddrV4) -> Option<bool> {
    match guard.judge(Transport::Tcp, to) {
        Verdict::Allowed { .. } => Some(true),
        Verdict::Refused(refusal) => (refusal.code == RefusalCode::DeniedName).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::HostAddresses;
    use agentiso_core::network::DomainName;
    use serde_json::json;

    const THERE: Ipv4Addr = Ipv4Addr::new(9, 9, 9, 9);

    fn access(policy: serde_json::Value, name: &str) -> Vec<(Option<u16>, bool)> {
        let policy: NetworkPolicy = serde_json::from_value(policy).unwrap();
        let guard = Guard::new(policy.clone(), HostAddresses::fixed([]), Ipv4Addr::new(10, 42, 0, 1));
        guard.bind(&DomainName::parse(name).unwrap(), THERE, Duration::from_secs(60));
        port_access(&guard, &policy, THERE).iter().map(|n| (n.port, n.open)).collect()
    }

    #[test]
    fn name_opens_its_address_at_listed_ports() {
        assert_eq!(access(json!({"allow_domains": ["a.example"]}), "a.example"), [(None, true)]);
        let some = json!({"allow_domains": ["a.example:80,443"]});
        assert_eq!(access(some.clone(), "a.example"), [(Some(80), true), (Some(443), true)]);
        assert_eq!(access(some, "b.example"), []);
    }

    #[test]
    fn denied_name_shuts_its_address_despite_internet() {
        let all = json!({"allow_internet": true, "deny_domains": ["a.example"]});
        assert_eq!(access(all, "a.example"), [(None, false)]);
        let one = json!({"allow_internet": true, "deny_domains": ["a.example:25"]});
        assert_eq!(access(one, "a.example"), [(None, true), (Some(25), false)]);
    }

    #[test]
    fn names_open_nothing_without_name_rules() {
        assert_eq!(access(json!({"allow_internet": true}), "a.example"), []);
    }
}
