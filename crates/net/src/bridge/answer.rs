//! Sends a guest an ICMP error at once when its datagram is refused.
//!
//! The kernel sends such errors too, but limits them per VM, and uses up that allowance whenever it forwards something
//! between two VMs of the bridge, because it tries to redirect them to each other. A guest that gets no error waits for
//! an answer that never comes.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};
use smoltcp::wire::{Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, IpProtocol, Ipv4Packet};

/// Bytes of a refused packet's payload that the error quotes: the ports.
const QUOTED: usize = 8;

const IP_HEAD: usize = 20;
const ICMP_HEAD: usize = 8;

/// A socket that only sends.
#[derive(Debug)]
pub(super) struct Refuser {
    socket: OwnedFd,
    /// The source address of the errors.
    gateway: Ipv4Addr,
}

impl Refuser {
    pub(super) fn open(gateway: Ipv4Addr) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::RAW))?;
        Ok(Self { socket, gateway })
    }

    /// Sends an error to the sender of this packet, if it is a unicast datagram.
    pub(super) fn refuse(&self, packet: &[u8]) {
        let Some((to, message)) = answer(self.gateway, packet) else { return };
        let to = SocketAddrV4::new(to, 0);
        if let Err(error) = sendto(&self.socket, &message, SendFlags::DONTWAIT, &to) {
            tracing::debug!(%error, "cannot tell a guest that its packet was refused");
        }
    }
}

/// The ICMP error as a packet, and its destination. `packet` may be cut behind its ports.
fn answer(from: Ipv4Addr, packet: &[u8]) -> Option<(Ipv4Addr, Vec<u8>)> {
    let head: &[u8; IP_HEAD] = packet.first_chunk()?;
    let length = usize::from(head[0] & 0xf) * 4;
    let quoted = packet.get(..length + QUOTED).filter(|_| length >= IP_HEAD)?;
    let refused = Ipv4Packet::new_unchecked(quoted);
    let (sender, target) = (refused.src_addr(), refused.dst_addr());
    let is_for_one = !target.is_multicast() && !target.is_broadcast();
    if refused.next_header() != IpProtocol::Udp || refused.frag_offset() != 0 || !is_for_one {
        return None;
    }
    let mut message = vec![0; IP_HEAD + ICMP_HEAD];
    message.extend_from_slice(quoted);
    let total = u16::try_from(message.len()).ok()?;
    let mut icmp = Icmpv4Packet::new_unchecked(&mut message[IP_HEAD..]);
    icmp.set_msg_type(Icmpv4Message::DstUnreachable);
    icmp.set_msg_code(Icmpv4DstUnreachable::CommProhibited.into());
    icmp.fill_checksum();
    let mut ip = Ipv4Packet::new_unchecked(&mut message[..]);
    ip.set_version(4);
    ip.set_header_len(IP_HEAD as u8);
    ip.set_total_len(total);
    ip.set_hop_limit(64);
    ip.set_next_header(IpProtocol::Icmp);
    ip.set_src_addr(from);
    ip.set_dst_addr(sender);
    ip.fill_checksum();
    Some((sender, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
    const GUEST: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);

    fn packet(protocol: u8, target: [u8; 4], options: &[u8]) -> Vec<u8> {
        let first = 0x45 + (options.len() / 4) as u8;
        let mut packet = vec![first, 0, 0, 30, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend(GUEST.octets());
        packet.extend(target);
        packet.extend(options);
        packet.extend([0x9c, 0x40, 0, 9, 0, 9, 0, 0, b'x']);
        packet
    }

    #[test]
    fn refused_datagram_is_quoted_in_the_icmp_error() {
        for options in [&[][..], &[1; 8]] {
            let refused = packet(17, [203, 0, 113, 9], options);
            let (to, message) = answer(GATEWAY, &refused).unwrap();
            assert_eq!(to, GUEST);
            let ip = Ipv4Packet::new_checked(&message[..]).unwrap();
            assert!(ip.verify_checksum());
            assert_eq!((ip.src_addr(), ip.dst_addr()), (GATEWAY, GUEST));
            let icmp = Icmpv4Packet::new_checked(ip.payload()).unwrap();
            assert!(icmp.verify_checksum());
            assert_eq!((icmp.msg_type(), icmp.msg_code()), (Icmpv4Message::DstUnreachable, 13));
            assert_eq!(icmp.data(), &refused[..refused.len() - 1]);
        }
    }

    #[test]
    fn only_unicast_datagrams_get_icmp_errors() {
        let mut part = packet(17, [9, 9, 9, 9], &[]);
        part[7] = 1;
        let cut = packet(17, [9, 9, 9, 9], &[])[..27].to_vec();
        let to_all = [[224, 0, 0, 251], [255; 4]].map(|target| packet(17, target, &[]));
        let others = [6, 1].map(|protocol| packet(protocol, [9, 9, 9, 9], &[]));
        for packet in to_all.into_iter().chain(others).chain([part, cut, Vec::new()]) {
            assert_eq!(answer(GATEWAY, &packet), None, "{packet:?}");
        }
    }

    proptest! {
        #[test]
        fn icmp_answer_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = answer(GATEWAY, &bytes);
        }
    }
}
