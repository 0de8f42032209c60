//! Frames that are assembled by hand.

use std::net::Ipv4Addr;

use agentiso_net::flow::GATEWAY_MAC;
use smoltcp::wire::Ipv4Packet;

/// An Ethernet frame with an IPv4 packet that no real stack would send.
pub(crate) fn ipv4_frame(
    mac: [u8; 6],
    source: Ipv4Addr,
    target: Ipv4Addr,
    protocol: u8,
    body: &[u8],
    flags: u16,
) -> Vec<u8> {
    let mut frame = GATEWAY_MAC.to_vec();
    frame.extend(mac);
    frame.extend([8, 0]);
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0];
    packet.extend(source.octets());
    packet.extend(target.octets());
    packet.extend(body);
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6..8].copy_from_slice(&flags.to_be_bytes());
    Ipv4Packet::new_unchecked(&mut packet[..]).fill_checksum();
    frame.extend(packet);
    frame
}

/// The body of a UDP datagram, without a checksum.
pub(crate) fn udp(source: u16, target: u16, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() + 8) as u16;
    [&source.to_be_bytes()[..], &target.to_be_bytes(), &length.to_be_bytes(), &[0, 0], payload].concat()
}
