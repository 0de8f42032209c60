//! Decodes the keys of the kernel's counts into flows.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::bridge::nft::KEY;
use crate::policy::Transport;

/// Header sizes of IP, without options, and of UDP.
const IP_HEAD: u64 = 20;
const UDP_HEAD: u64 = 8;

/// The identity of a flow among those that one guest has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) transport: Transport,
    pub(crate) guest_port: u16,
    pub(crate) remote: SocketAddrV4,
}

/// Properties that all packets of one key share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeaderInfo {
    /// Header bytes of each packet.
    pub(super) heads: u64,
    pub(super) opens: bool,
    pub(super) ends: bool,
    pub(super) resets: bool,
}

/// Decodes a key. `None`: our rules do not make such a key.
pub(super) fn read(key: &[u8; KEY]) -> Option<(Flow, HeaderInfo)> {
    let [a, b, c, d, guest_high, guest_low, _, _, high, low, _, _, protocol, _, _, _, length, flags, ..] =
        *key;
    let (transport, heads) = match protocol {
        6 => (Transport::Tcp, u64::from(length >> 4) * 4),
        17 => (Transport::Udp, UDP_HEAD),
        _ => return None,
    };
    let is = |bit: u8| transport == Transport::Tcp && flags & bit != 0;
    let remote = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
    let flow = Flow { transport, guest_port: u16::from_be_bytes([guest_high, guest_low]), remote };
    Some((flow, HeaderInfo { heads: IP_HEAD + heads, ends: is(1), opens: is(2), resets: is(4) }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes a key as the kernel does.
    pub(in crate::bridge::flows) fn key(flow: &Flow, length: u8, flags: u8) -> [u8; KEY] {
        let mut key = [0; KEY];
        key[..4].copy_from_slice(&flow.remote.ip().octets());
        key[4..6].copy_from_slice(&flow.guest_port.to_be_bytes());
        key[8..10].copy_from_slice(&flow.remote.port().to_be_bytes());
        key[12] = if flow.transport == Transport::Tcp { 6 } else { 17 };
        key[16] = length << 4;
        key[17] = flags;
        key
    }

    #[test]
    fn count_key_decodes_flow_and_tcp_flags() {
        let flow =
            Flow { transport: Transport::Tcp, guest_port: 40_000, remote: "10.42.0.3:80".parse().unwrap() };
        let (read_flow, info) = read(&key(&flow, 10, 2)).unwrap();
        assert_eq!(read_flow, flow);
        assert_eq!(info, HeaderInfo { heads: 60, opens: true, ends: false, resets: false });
        let datagrams = Flow { transport: Transport::Udp, ..flow };
        let (read_flow, info) = read(&key(&datagrams, 0, 0)).unwrap();
        assert_eq!((read_flow, info.heads), (datagrams, 28));
    }

    proptest! {
        #[test]
        fn count_key_reader_survives_any_bytes(bytes in prop::array::uniform20(any::<u8>())) {
            if let Some((_, info)) = read(&bytes) {
                prop_assert!((20..=80).contains(&info.heads));
            }
        }
    }
}
