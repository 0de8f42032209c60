//! Dispatches each frame of a guest.
//!
//! Nothing here waits: a frame is answered, given to the task of its flow, passed to another VM, or dropped.

use std::net::SocketAddrV4;
use std::sync::Arc;

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol};

use super::counters::{add, count};
use super::packet::{self, Bad, Body, Packet, Segment, is_unicast};
use super::reply::{self, Unreachable};
use super::table::{Delivery, FlowKey};
use super::vm::Vm;
use crate::flow::GATEWAY_MAC;
use crate::flow::log::FlowEvent;
use crate::flow::names;
use crate::policy::{Transport, Verdict};

impl Vm {
    /// Handles one frame of the guest.
    pub(crate) fn frame(self: &Arc<Self>, bytes: &[u8]) {
        count(&self.counters.frames_up);
        add(&self.counters.bytes_up, bytes.len());
        let Ok(frame) = EthernetFrame::new_checked(bytes) else { return count(&self.counters.malformed) };
        if frame.src_addr() != EthernetAddress(self.identity.mac) {
            return self
                .spoofed(|| format!("a frame from {}, which is not the VM's MAC address", frame.src_addr()));
        }
        let to_us = frame.dst_addr() == EthernetAddress(GATEWAY_MAC);
        match frame.ethertype() {
            EthernetProtocol::Arp if to_us || frame.dst_addr().is_broadcast() => self.arp(frame.payload()),
            EthernetProtocol::Ipv4 if to_us => self.ipv4(frame.payload()),
            EthernetProtocol::Ipv6 => count(&self.counters.ipv6),
            EthernetProtocol::Arp | EthernetProtocol::Ipv4 | EthernetProtocol::Unknown(_) => {
                count(&self.counters.other);
            }
        }
    }

    fn arp(&self, bytes: &[u8]) {
        let parsed = ArpPacket::new_checked(bytes).and_then(|packet| ArpRepr::parse(&packet));
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        }) = parsed
        else {
            return count(&self.counters.malformed);
        };
        let own = self.identity.address;
        // An ARP probe for a free address has no source address.
        let probes = source_protocol_addr.is_unspecified();
        if source_hardware_addr != EthernetAddress(self.identity.mac)
            || !(probes || source_protocol_addr == own)
        {
            return self.spoofed(|| {
                format!("an ARP message from {source_protocol_addr}, which is not the VM's address")
            });
        }
        let asked = operation == ArpOperation::Request && target_protocol_addr != own && !probes;
        if asked && self.settings.is_local(target_protocol_addr) {
            self.send(Some(reply::arp(&self.link, target_protocol_addr, self.identity.mac, own)));
        }
    }

    fn ipv4(self: &Arc<Self>, bytes: &[u8]) {
        let packet = match packet::parse(bytes) {
            Ok(packet) => packet,
            Err(Bad::Malformed) => return count(&self.counters.malformed),
            Err(Bad::Fragment) => return count(&self.counters.fragments),
        };
        if packet.source != self.identity.address {
            return self
                .spoofed(|| format!("a packet from {}, which is not the VM's address", packet.source));
        }
        if !is_unicast(packet.target) || packet.target == self.identity.address {
            return count(&self.counters.other);
        }
        if packet.target == self.settings.address {
            self.to_gateway(&packet);
        } else if self.settings.is_local(packet.target) {
            self.to_neighbour(&packet);
        } else {
            self.to_outside(&packet);
        }
    }

    fn to_gateway(self: &Arc<Self>, packet: &Packet<'_>) {
        match &packet.body {
            Body::Tcp(segment) if self.to_flow(packet, segment) => {}
            Body::Tcp(segment) if segment.opens() && segment.target == names::PORT => {
                self.open_names(packet, segment);
            }
            Body::Tcp(segment) if segment.opens() => match self.service_at(segment.target) {
                Some(service) => self.open_service(packet, segment, service),
                None => self.send(reply::reset(&self.link, packet, segment)),
            },
            Body::Tcp(segment) => self.send(reply::reset(&self.link, packet, segment)),
            Body::Udp(datagram) if datagram.target == names::PORT => self.query(packet, datagram),
            Body::Ping { ident, sequence, data } => {
                self.send(Some(reply::pong(&self.link, packet, *ident, *sequence, data)));
            }
            Body::Udp(_) | Body::Other => self.unreachable(packet, Unreachable::Prohibited),
            Body::Icmp => {}
        }
    }

    fn to_outside(self: &Arc<Self>, packet: &Packet<'_>) {
        match &packet.body {
            Body::Tcp(segment) if self.to_flow(packet, segment) => {}
            Body::Tcp(segment) if segment.opens() => self.open_outbound(packet, segment),
            Body::Tcp(segment) => self.send(reply::reset(&self.link, packet, segment)),
            Body::Udp(datagram) => self.to_association(packet, datagram),
            Body::Ping { .. } => {
                let to = SocketAddrV4::new(packet.target, 0);
                self.complain(FlowEvent::Refused, Transport::Icmp, None, to, || {
                    match self.guard.judge(Transport::Icmp, to) {
                        Verdict::Refused(refusal) => refusal.message,
                        Verdict::Allowed { .. } => "only TCP and UDP leave the gateway, no ping".to_owned(),
                    }
                });
                self.unreachable(packet, Unreachable::Prohibited);
            }
            Body::Icmp => {}
            Body::Other => self.unreachable(packet, Unreachable::Prohibited),
        }
    }

    /// Gives a segment to its flow; `false` if there is none.
    fn to_flow(&self, packet: &Packet<'_>, segment: &Segment) -> bool {
        let remote = SocketAddrV4::new(packet.target, segment.target);
        let key = FlowKey { guest_port: segment.source, remote };
        match self.flows.deliver(&key, || self.link.pool().copy(packet.bytes)) {
            Delivery::Delivered => true,
            Delivery::Lost => {
                self.overflowed();
                true
            }
            Delivery::NoFlow => false,
        }
    }

    pub(crate) fn unreachable(&self, packet: &Packet<'_>, why: Unreachable) {
        self.send(reply::unreachable(&self.link, self.settings.address, packet.bytes, why));
    }

    fn spoofed(&self, what: impl FnOnce() -> String) {
        count(&self.counters.spoofed);
        let to = SocketAddrV4::new(self.identity.address, 0);
        self.complain(FlowEvent::Dropped, Transport::Icmp, None, to, what);
    }
}
