//! Parses a guest's IPv4 packets, with the checks that the gateway relies on.

use std::net::Ipv4Addr;

use smoltcp::wire::{Icmpv4Packet, Icmpv4Repr, Ipv4Packet, TcpPacket, TcpSeqNumber, UdpPacket};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The reason that a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// A length, a version or a checksum is wrong.
    Malformed,
    Fragment,
}

#[derive(Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) source: Ipv4Addr,
    pub(crate) target: Ipv4Addr,
    pub(crate) hops: u8,
    pub(crate) body: Body<'a>,
    /// The whole packet, without the padding of the frame.
    pub(crate) bytes: &'a [u8],
}

#[derive(Debug)]
pub(crate) enum Body<'a> {
    Tcp(Segment),
    Udp(Datagram<'a>),
    /// An echo request.
    Ping {
        ident: u16,
        sequence: u16,
        data: &'a [u8],
    },
    /// Other ICMP messages: answers and reports, which get no answer.
    Icmp,
    Other,
}

/// The header of a TCP segment. Its checksum is checked by the stack that takes it; only that of a SYN is checked here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) source: u16,
    pub(crate) target: u16,
    pub(crate) sequence: TcpSeqNumber,
    pub(crate) acknowledged: Option<TcpSeqNumber>,
    /// Sequence numbers that it uses, those of SYN and FIN included.
    pub(crate) length: usize,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
}

impl Segment {
    /// Whether it asks for a connection.
    pub(crate) fn opens(&self) -> bool {
        self.syn && self.acknowledged.is_none() && !self.rst && !self.fin
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram<'a> {
    pub(crate) source: u16,
    pub(crate) target: u16,
    pub(crate) payload: &'a [u8],
}

/// Parses an IPv4 packet, which may have padding behind it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Packet<'_>, Bad> {
    let packet = Ipv4Packet::new_checked(bytes).map_err(|_| Bad::Malformed)?;
    if packet.version() != 4 || packet.header_len() < 20 || !packet.verify_checksum() {
        return Err(Bad::Malformed);
    }
    if packet.more_frags() || packet.frag_offset() != 0 {
        return Err(Bad::Fragment);
    }
    let body = match u8::from(packet.next_header()) {
        TCP => Body::Tcp(segment(&packet)?),
        UDP => Body::Udp(datagram(&packet)?),
        ICMP => icmp(packet.payload())?,
        _ => Body::Other,
    };
    let length = usize::from(packet.total_len());
    let bytes = bytes.get(..length).ok_or(Bad::Malformed)?;
    Ok(Packet { source: packet.src_addr(), target: packet.dst_addr(), hops: packet.hop_limit(), body, bytes })
}

fn segment(packet: &Ipv4Packet<&[u8]>) -> Result<Segment, Bad> {
    let tcp = TcpPacket::new_checked(packet.payload()).map_err(|_| Bad::Malformed)?;
    let segment = Segment {
        source: tcp.src_port(),
        target: tcp.dst_port(),
        sequence: tcp.seq_number(),
        acknowledged: tcp.ack().then(|| tcp.ack_number()),
        length: tcp.segment_len(),
        syn: tcp.syn(),
        fin: tcp.fin(),
        rst: tcp.rst(),
    };
    let damaged =
        segment.opens() && !tcp.verify_checksum(&packet.src_addr().into(), &packet.dst_addr().into());
    if segment.source == 0 || segment.target == 0 || damaged {
        return Err(Bad::Malformed);
    }
    Ok(segment)
}

fn datagram<'a>(packet: &Ipv4Packet<&'a [u8]>) -> Result<Datagram<'a>, Bad> {
    let udp = UdpPacket::new_checked(packet.payload()).map_err(|_| Bad::Malformed)?;
    let right = udp.verify_checksum(&packet.src_addr().into(), &packet.dst_addr().into());
    if udp.dst_port() == 0 || !right {
        return Err(Bad::Malformed);
    }
    Ok(Datagram { source: udp.src_port(), target: udp.dst_port(), payload: udp.payload() })
}

fn icmp(bytes: &[u8]) -> Result<Body<'_>, Bad> {
    let packet = Icmpv4Packet::new_checked(bytes).map_err(|_| Bad::Malformed)?;
    if !packet.verify_checksum() {
        return Err(Bad::Malformed);
    }
    match Icmpv4Repr::parse(&packet, &smoltcp::phy::ChecksumCapabilities::ignored()) {
        Ok(Icmpv4Repr::EchoRequest { ident, seq_no, data }) => {
            Ok(Body::Ping { ident, sequence: seq_no, data })
        }
        Ok(_) | Err(_) => Ok(Body::Icmp),
    }
}

/// Whether an address stands for one host. Packets to many are dropped without an answer.
pub(crate) fn is_unicast(address: Ipv4Addr) -> bool {
    !(address.is_multicast() || address.is_broadcast() || address.is_unspecified())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packet_parser_survives_any_bytes(bytes in vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn packet_parser_survives_any_body(protocol in prop_oneof![Just(1_u8), Just(6), Just(17)], body in vec(any::<u8>(), 0..80)) {
            let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 42, 0, 2, 1, 2, 3, 4];
            bytes.extend(body);
            let length = bytes.len() as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            Ipv4Packet::new_unchecked(&mut bytes[..]).fill_checksum();
            let _ = parse(&bytes);
        }
    }
}
