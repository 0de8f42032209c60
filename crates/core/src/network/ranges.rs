//! IPv4 ranges that are not part of the public internet.

use std::net::Ipv4Addr;

use super::cidr::Network;

/// A rule wider than this is about the internet as a whole (`0.0.0.0/0:443`) and allows no address that is not
/// public, because its author does not mean the services of a private network. The widest private range is a /8.
pub const NARROW_PREFIX: u8 = 8;

/// Networks whose addresses are the host itself, its own network or unused, each with its description.
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

/// Networks through which a connection would reach the daemon's own host: Linux takes 0.0.0.0 for the loopback too.
const UNREACHABLE: [(Network, &str); 3] = [
    (Network::literal([0, 0, 0, 0], 8), "this host"),
    (Network::literal([127, 0, 0, 0], 8), "the host's loopback"),
    (Network::literal([255, 255, 255, 255], 32), "the host's broadcast address"),
];

/// The kind of this address, if it is not public.
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

/// The kind of this address, if no policy can allow it.
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
    fn special_addresses_are_never_public() {
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
