//! Builds answers that need no flow: ARP, resets, pings, datagrams, and ICMP errors.

use std::net::{Ipv4Addr, SocketAddrV4};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetProtocol, Icmpv4DstUnreachable, Icmpv4Packet,
    Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber, UdpPacket,
    UdpRepr,
};

use super::link::{Frame, Link};
use super::packet::{Packet, Segment};
use crate::flow::GATEWAY_MAC;

/// Bytes of a refused packet that an ICMP error quotes: enough for ports and sequence numbers, as RFC 792 asks.
const QUOTED: usize = 8;

/// The reason that a packet could not be delivered, as ICMP knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreachable {
    /// A policy says no.
    Prohibited,
    /// The host did not answer.
    Host,
    /// Nothing listens on the port.
    Port,
}

impl Unreachable {
    fn about(self, header: Ipv4Repr, data: &[u8]) -> Icmpv4Repr<'_> {
        let reason = match self {
            Self::Prohibited => Icmpv4DstUnreachable::CommProhibited,
            Self::Host => Icmpv4DstUnreachable::HostUnreachable,
            Self::Port => Icmpv4DstUnreachable::PortUnreachable,
        };
        Icmpv4Repr::DstUnreachable { reason, header, data }
    }
}

/// The ARP answer "I have that address": the gateway stands in for every other address.
pub(crate) fn arp(link: &Link, address: Ipv4Addr, guest: [u8; 6], guest_address: Ipv4Addr) -> Frame {
    let answer = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(GATEWAY_MAC),
        source_protocol_addr: address,
        target_hardware_addr: EthernetAddress(guest),
        target_protocol_addr: guest_address,
    };
    let mut frame = link.frame_of(EthernetProtocol::Arp, answer.buffer_len());
    answer.emit(&mut ArpPacket::new_unchecked(frame.packet()));
    frame
}

/// The reset that answers a segment without a flow. `None` for a reset: two ends must not reset each other for ever.
pub(crate) fn reset(link: &Link, packet: &Packet<'_>, segment: &Segment) -> Option<Frame> {
    if segment.rst {
        return None;
    }
    // RFC 9293, 3.5.2: the reset must be one that the other end accepts.
    let (sequence, acknowledged) = match segment.acknowledged {
        Some(acknowledged) => (acknowledged, None),
        None => (TcpSeqNumber(0), Some(segment.sequence + segment.length)),
    };
    let from = SocketAddrV4::new(packet.target, segment.target);
    let to = SocketAddrV4::new(packet.source, segment.source);
    Some(reset_with(link, from, to, sequence, acknowledged))
}

/// A reset in the name of `from`, which `to` accepts if it expects that sequence number next.
pub(crate) fn reset_with(
    link: &Link,
    from: SocketAddrV4,
    to: SocketAddrV4,
    sequence: TcpSeqNumber,
    acknowledged: Option<TcpSeqNumber>,
) -> Frame {
    let tcp = TcpRepr {
        src_port: from.port(),
        dst_port: to.port(),
        control: TcpControl::Rst,
        seq_number: sequence,
        ack_number: acknowledged,
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let (from, to) = (*from.ip(), *to.ip());
    link.ipv4(from, to, IpProtocol::Tcp, tcp.buffer_len(), |bytes| {
        let mut packet = TcpPacket::new_unchecked(bytes);
        tcp.emit(&mut packet, &from.into(), &to.into(), &ChecksumCapabilities::default());
    })
}

/// The ICMP error about a packet that could not be delivered, sent from `from`.
pub(crate) fn unreachable(link: &Link, from: Ipv4Addr, packet: &[u8], why: Unreachable) -> Option<Frame> {
    let quoted = Ipv4Packet::new_checked(packet).ok()?;
    let header = Ipv4Repr::parse(&quoted, &ChecksumCapabilities::ignored()).ok()?;
    let payload = quoted.payload();
    let data = &payload[..payload.len().min(QUOTED)];
    Some(icmp(link, from, quoted.src_addr(), &why.about(header, data)))
}

/// The ICMP error, in the name of `remote`, about a datagram of the guest of which only the addresses and ports are
/// known.
pub(crate) fn datagram_unreachable(
    link: &Link,
    guest: (Ipv4Addr, u16),
    remote: (Ipv4Addr, u16),
    why: Unreachable,
) -> Frame {
    let header = Ipv4Repr {
        src_addr: guest.0,
        dst_addr: remote.0,
        next_header: IpProtocol::Udp,
        payload_len: QUOTED,
        hop_limit: 64,
    };
    let mut data = [0; QUOTED];
    let mut udp = UdpPacket::new_unchecked(&mut data);
    udp.set_src_port(guest.1);
    udp.set_dst_port(remote.1);
    udp.set_len(QUOTED as u16);
    icmp(link, remote.0, guest.0, &why.about(header, &data))
}

pub(crate) fn pong(link: &Link, packet: &Packet<'_>, ident: u16, sequence: u16, data: &[u8]) -> Frame {
    let message = Icmpv4Repr::EchoReply { ident, seq_no: sequence, data };
    icmp(link, packet.target, packet.source, &message)
}

fn icmp(link: &Link, from: Ipv4Addr, to: Ipv4Addr, message: &Icmpv4Repr<'_>) -> Frame {
    link.ipv4(from, to, IpProtocol::Icmp, message.buffer_len(), |bytes| {
        message.emit(&mut Icmpv4Packet::new_unchecked(bytes), &ChecksumCapabilities::default());
    })
}

pub(crate) fn datagram(link: &Link, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Frame {
    let udp = UdpRepr { src_port: from.1, dst_port: to.1 };
    let length = udp.header_len() + payload.len();
    link.ipv4(from.0, to.0, IpProtocol::Udp, length, |bytes| {
        udp.emit(
            &mut UdpPacket::new_unchecked(bytes),
            &from.0.into(),
            &to.0.into(),
            payload.len(),
            |space| space.copy_from_slice(payload),
            &ChecksumCapabilities::default(),
        );
    })
}
