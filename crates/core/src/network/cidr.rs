//! Rules about addresses: `10.0.0.0/8`, `10.1.2.3`, `10.0.0.0/8:5432`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::ports::RulePorts;
use super::ranges::NARROW_PREFIX;

/// An IPv4 network without bits beyond its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    address: Ipv4Addr,
    prefix: u8,
}

impl Network {
    /// The network with this prefix that holds the address. Prefixes beyond 32 mean the address alone.
    pub fn around(address: Ipv4Addr, prefix: u8) -> Self {
        let prefix = prefix.min(32);
        Self { address: Ipv4Addr::from_bits(address.to_bits() & mask(prefix)), prefix }
    }

    /// A network of this crate's tables. The address must have no bits beyond its prefix.
    pub(super) const fn literal(address: [u8; 4], prefix: u8) -> Self {
        let [a, b, c, d] = address;
        Self { address: Ipv4Addr::new(a, b, c, d), prefix }
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The first address of the network.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    pub fn mask(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(mask(self.prefix))
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.prefix) == self.address.to_bits()
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.prefix < 32 { write!(f, "/{}", self.prefix) } else { Ok(()) }
    }
}

/// A rule about a network and some or all of its ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CidrRule {
    network: Network,
    ports: RulePorts,
}

impl CidrRule {
    /// Parses a rule. The error is a sentence for its author.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("is empty; write a network such as 10.0.0.0/8 or an address".to_owned());
        }
        let before_prefix = text.split('/').next().unwrap_or(text);
        if text.starts_with('[') || before_prefix.parse::<Ipv6Addr>().is_ok() {
            return Err(format!("{text:?} is IPv6; workspaces have only IPv4"));
        }
        let (network, ports) = RulePorts::split(text)?;
        let (address, prefix) = match network.split_once('/') {
            None => (network, 32),
            Some((address, prefix)) => (address, parse_prefix(prefix)?),
        };
        let Ok(address) = address.parse::<Ipv4Addr>() else {
            return Err(format!(
                "{address:?} is not an IPv4 address; write 10.0.0.0/8, 10.1.2.3 or 10.0.0.0/8:5432, and put names into \
                 the list of domains"
            ));
        };
        let network = Network::around(address, prefix);
        if network.address != address {
            return Err(format!(
                "{address}/{prefix} has bits beyond its prefix; write {network} for the network or {address} for the \
                 address"
            ));
        }
        Ok(Self { network, ports })
    }

    pub fn network(&self) -> Network {
        self.network
    }

    pub fn ports(&self) -> &RulePorts {
        &self.ports
    }

    pub fn matches(&self, address: Ipv4Addr, port: u16) -> bool {
        self.network.contains(address) && self.ports.contains(port)
    }

    /// Whether the rule is about a certain network rather than about the internet as a whole; see [`NARROW_PREFIX`].
    pub fn is_narrow(&self) -> bool {
        self.network.prefix >= NARROW_PREFIX
    }
}

fn parse_prefix(text: &str) -> Result<u8, String> {
    let digits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u8>().ok().filter(|prefix| digits && *prefix <= 32).ok_or_else(|| {
        format!("{text:?} is not a prefix length; write a number from 0 to 32 after the slash")
    })
}

impl fmt::Display for CidrRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.network, self.ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bad_cidr_rules_are_refused_with_reason() {
        let bad = [
            ("", "empty"),
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("10.0.0.0/33", "0 to 32"),
            ("10.0.0.0/+8", "0 to 32"),
            ("10.0.0.0/008", "0 to 32"),
            ("10.0.0/8", "not an IPv4 address"),
            ("010.0.0.0/8", "not an IPv4 address"),
            ("example.com", "list of domains"),
            ("fd00::/8", "IPv6"),
            ("::1", "IPv6"),
            ("[::1]:80", "IPv6"),
            ("10.0.0.0/8:0", "1 to 65535"),
            ("10.0.0.0/8:", "1 to 65535"),
            ("10.0.0.0/8:80,", "1 to 65535"),
            ("10.0.0.0/8:+80", "1 to 65535"),
            ("10.0.0.0/8:65536", "1 to 65535"),
        ];
        for (text, why) in bad {
            let error = CidrRule::parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }

    #[test]
    fn rule_matches_only_its_ports() {
        let rule = CidrRule::parse("10.0.0.0/8:5432,80,80").unwrap();
        assert_eq!(rule.to_string(), "10.0.0.0/8:5432,80");
        assert!(rule.matches(Ipv4Addr::new(10, 9, 9, 9), 80));
        assert!(!rule.matches(Ipv4Addr::new(10, 9, 9, 9), 81));
        assert!(!rule.matches(Ipv4Addr::new(11, 9, 9, 9), 80));
    }

    proptest! {
        #[test]
        fn cidr_rule_survives_its_text_form(bits: u32, prefix in 0_u8..=32, ports in prop::collection::vec(1_u16.., 0..5)) {
            let network = Network::around(Ipv4Addr::from_bits(bits), prefix);
            prop_assert!(network.contains(Ipv4Addr::from_bits(bits)));
            let mut text = network.to_string();
            for (index, port) in ports.iter().enumerate() {
                text.push_str(&format!("{}{port}", if index == 0 { ":" } else { "," }));
            }
            let rule = CidrRule::parse(&text).unwrap();
            prop_assert_eq!(CidrRule::parse(&rule.to_string()).unwrap(), rule);
        }

        #[test]
        fn cidr_parser_never_panics(text in ".{0,40}") {
            let _ = CidrRule::parse(&text);
        }

        #[test]
        fn network_contains_addresses_with_its_prefix(a: u32, b: u32, prefix in 0_u8..=32) {
            let same = prefix == 0 || a >> (32 - prefix) == b >> (32 - prefix);
            prop_assert_eq!(Network::around(Ipv4Addr::from_bits(a), prefix).contains(Ipv4Addr::from_bits(b)), same);
        }
    }
}
