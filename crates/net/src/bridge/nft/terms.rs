//! The terms of rules: fields of packets, values to compare them with, and actions.

use std::net::Ipv4Addr;
use std::time::Duration;

use agentiso_core::network::Network;

use super::tuple::Tuple;

/// Longest name of an interface, with its trailing zero.
pub(super) const INTERFACE_NAME: usize = 16;

/// A property of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    InInterface,
    OutInterface,
    EtherSource,
    EtherType,
    /// Kinds and lengths of the addresses in an ARP message.
    ArpFormat,
    ArpSenderMac,
    ArpSenderAddress,
    SourceAddress,
    TargetAddress,
    /// The version of IP.
    Family,
    Protocol,
    SourcePort,
    TargetPort,
    IcmpType,
    /// The length of a TCP header, and its flags.
    TcpFlags,
    /// Whether the packet goes in the direction of the one that opened its connection.
    Direction,
    /// The packet's state in connection tracking.
    State,
    /// The type of the target in this host's routing.
    TargetKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(super) bytes: Vec<u8>,
    pub(super) text: String,
}

impl Value {
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ICMP: u8 = 1;

    pub(crate) fn interface(name: &str) -> Self {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(INTERFACE_NAME, 0);
        Self { bytes, text: format!("\"{name}\"") }
    }

    /// Interfaces with this prefix.
    pub(crate) fn interfaces(prefix: &str) -> Self {
        Self { bytes: prefix.as_bytes().to_vec(), text: format!("\"{prefix}*\"") }
    }

    pub(crate) fn mac(mac: [u8; 6]) -> Self {
        Self { bytes: mac.to_vec(), text: agentiso_core::address::format_mac(mac) }
    }

    pub(crate) fn address(address: Ipv4Addr) -> Self {
        Self { bytes: address.octets().to_vec(), text: address.to_string() }
    }

    pub(crate) fn port(port: u16) -> Self {
        Self { bytes: port.to_be_bytes().to_vec(), text: port.to_string() }
    }

    pub(crate) fn protocol(number: u8) -> Self {
        let text = match number {
            Self::TCP => "tcp".to_owned(),
            Self::UDP => "udp".to_owned(),
            Self::ICMP => "icmp".to_owned(),
            other => other.to_string(),
        };
        Self { bytes: vec![number], text }
    }

    pub(crate) fn ipv4() -> Self {
        Self { bytes: vec![8, 0], text: "ip".to_owned() }
    }

    /// `NFPROTO_IPV4`.
    pub(crate) fn fourth_version() -> Self {
        Self { bytes: vec![2], text: "ipv4".to_owned() }
    }

    pub(crate) fn arp() -> Self {
        Self { bytes: vec![8, 6], text: "arp".to_owned() }
    }

    /// Ethernet and IPv4, with addresses of 6 and 4 bytes.
    pub(crate) fn arp_format() -> Self {
        Self { bytes: vec![0, 1, 8, 0, 6, 4], text: "0x000108000604".to_owned() }
    }

    pub(crate) fn echo_request() -> Self {
        Self { bytes: vec![8], text: "echo-request".to_owned() }
    }

    pub(crate) fn redirect_message() -> Self {
        Self { bytes: vec![5], text: "redirect".to_owned() }
    }

    pub(crate) fn original() -> Self {
        Self { bytes: vec![0], text: "original".to_owned() }
    }

    pub(crate) fn reply() -> Self {
        Self { bytes: vec![1], text: "reply".to_owned() }
    }

    /// The first packet of a connection, in host byte order.
    pub(crate) fn new_connection() -> Self {
        Self { bytes: 8_u32.to_ne_bytes().to_vec(), text: "new".to_owned() }
    }

    /// An address of this host: `RTN_LOCAL`, in host byte order.
    pub(crate) fn local() -> Self {
        Self { bytes: 2_u32.to_ne_bytes().to_vec(), text: "local".to_owned() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Is(Field, Value),
    IsNot(Field, Value),
    Within(Field, Network),
    /// The field is in a set.
    Among(Field, String),
    /// Both fields together are in a set.
    PairAmong(Field, Field, String),
    /// The set has no count for this key yet.
    NotCounted(Tuple, String),
    /// Counts the packet. It fails only if the set is full.
    Counted {
        tuple: Tuple,
        set: String,
        /// The count expires this long after the last packet.
        forgotten: Duration,
    },
    /// True for this many packets per second.
    AtMost {
        packets: u64,
    },
    /// True for connections beyond this number.
    TooMany {
        connections: u32,
    },
    /// True for frames beyond this rate per second.
    TooFast {
        frames: u64,
        burst: u32,
    },
    /// True for bytes beyond this rate per second.
    Beyond {
        bytes: u64,
        burst: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Accept,
    Drop,
    Jump(String),
    Goto(String),
    /// Goes to the chain in the map, or to the next rule if there is none.
    Follow(Field, String),
    Reset,
    Prohibit,
    /// Sends the packet to the listeners of this group, and continues.
    Log {
        group: u16,
    },
    Masquerade,
    /// Redirects to a port of this host's address on the incoming interface.
    Redirect {
        port: u16,
    },
    Return,
}
