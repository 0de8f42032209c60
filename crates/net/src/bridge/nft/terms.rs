//! What rules are made of: fields of packets, values they are compared with, and what is done.

use std::net::Ipv4Addr;
use std::time::Duration;

use agentiso_core::network::Network;

use super::tuple::Tuple;

/// Longest name of an interface, with the zero at its end.
pub(super) const INTERFACE_NAME: usize = 16;

/// Something that can be read of a packet.
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
    /// Of the network: which version of IP.
    Family,
    Protocol,
    SourcePort,
    TargetPort,
    IcmpType,
    /// How long a TCP head is, and its flags.
    TcpSigns,
    /// Whether the packet goes the way of the one that opened its connection.
    Direction,
    /// What connection tracking says of the packet.
    State,
    /// What the target is to this host's routing.
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

    /// Interfaces whose name begins so.
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

    /// The first packet of a connection, in the host's order.
    pub(crate) fn new_connection() -> Self {
        Self { bytes: 8_u32.to_ne_bytes().to_vec(), text: "new".to_owned() }
    }

    /// An address of this host: `RTN_LOCAL`, in the host's order.
    pub(crate) fn local() -> Self {
        Self { bytes: 2_u32.to_ne_bytes().to_vec(), text: "local".to_owned() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Is(Field, Value),
    IsNot(Field, Value),
    Within(Field, Network),
    /// The field, or the two of them together, is in a set.
    Among(Field, String),
    PairAmong(Field, Field, String),
    /// Nothing of this flow, with these signs, was counted so far.
    NotCounted(Tuple, String),
    /// The packet is counted for its flow, which fails only if that is one more than the set has room for.
    Counted {
        tuple: Tuple,
        set: String,
        /// A count that nobody asks for goes by itself, so long after the last packet.
        forgotten: Duration,
    },
    /// True for so many packets in a second.
    AtMost {
        packets: u64,
    },
    /// True for a connection beyond so many that came by here.
    TooMany {
        connections: u32,
    },
    /// True for what exceeds so many frames in a second.
    TooFast {
        frames: u64,
        burst: u32,
    },
    /// True for what exceeds so many bytes in a second.
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
    /// Goes where the map says, or on if it says nothing.
    Follow(Field, String),
    Reset,
    Prohibit,
    /// Tells who listens to this group, and goes on.
    Log {
        group: u16,
    },
    Masquerade,
    /// To a port of this host's address on the interface that the packet came in by.
    Redirect {
        port: u16,
    },
    Return,
}
