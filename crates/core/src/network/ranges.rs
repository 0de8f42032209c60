//! Ranges of IPv4 that are not the internet.

use std::net::Ipv4Addr;

use super::cidr::Network;

/// A rule wider than this speaks of the internet as a whole (`0.0.0.0/0:443`) and opens no address that is not
/// public: nobody who writes it means the services of their own network. The widest private range is a /8.
pub const NARROW_PREFIX: u8 = 8;

/// What lies at these addresses is the host itself, its own network or nobody, with the reason in words.
const NEVER_PUBLIC: [(Network, &str); 12] = [
    (Network::literal([0, 0, 0, 0], 8), "this host"),
    (Network::literal([10, 0, 0, 0], 8), "a private network"),
    (Network::literal([100, 64, 0, 0], 10), "the provider's network"),
    (Network::literal([127, 0, 0, 0], 8), "the loopback"),
    (Network::literal([169, 254, 0, 0], 16), "link-local, where cloud metadata is served"),
    (Network::literal([172, 16, 0, 0], 12), "a private network"),
    (Network::literal([192, 0, 0, 0], 24), "reserved for protocols"),
    (Network::literal([192, 168, 0, 0], 16), "a private network"),
    (Network::literal([198, 18, 0, 0], 15), "reserved for measurements"),
    (Network::literal([224, 0, 0, 0], 4), "multicast"),
    (Network::literal([255, 255, 255, 255], 32), "broadcast"),
    (Network::literal([240, 0, 0, 0], 4), "reserved"),
];

/// What a connection to here would reach is the daemon's own host, whatever the address looks like: Linux takes
/// 0.0.0.0 for the loopback too.
const UNREACHABLE: [(Network, &str); 3] = [
    (Network::literal([0, 0, 0, 0], 8), "this host"),
    (Network::literal([127, 0, 0, 0], 8), "the host's loopback"),
    (Network::literal([255, 255, 255, 255], 32), "the host's broadcast address"),
];

/// What kind of address this is, if it is not a public one.
pub fn never_public(address: Ipv4Addr) -> Option<&'static str> {
    NEVER_PUBLIC.iter().find(|(network, _)| network.contains(address)).map(|(_, what)| *what)
}

/// All networks whose addresses are [`never_public`].
pub fn never_public_networks() -> impl Iterator<Item = Network> {
    NEVER_PUBLIC.iter().map(|(network, _)| *network)
}

/// All networks whose addresses are [`unreachable`].
pub fn unreachable_networks() -> impl Iterator<Item = Network> {
    UNREACHABLE.iter().map(|(network, _)| *network)
}

/// What this is, if no policy can open it.
pub fn unreachable(address: Ipv4Addr) -> Option<&'static str> {
    UNREACHABLE.iter().find(|(network, _)| network.contains(address)).map(|(_, what)| *what)
}

/// As [`unreachable`], for a whole network.
pub(super) fn unreachable_network(network: &Network) -> Option<&'static str> {
    UNREACHABLE.iter().find(|(range, _)| range.covers(network)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_special_addresses_are_told_from_public_ones() {
        let special = [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
        ];
        for address in special {
            assert!(never_public(address.parse().unwrap()).is_some(), "{address}");
        }
        for address in
            ["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.128.0.1", "172.32.0.1", "223.255.255.255"]
        {
            assert_eq!(never_public(address.parse().unwrap()), None, "{address}");
        }
    }
}
