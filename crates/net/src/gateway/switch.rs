//! From one VM to another: packets pass when both sides want it so.
//!
//! The decision is made for every packet, so that a connection does not outlive the policies that allowed it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, PoisonError, RwLock};

use smoltcp::wire::Ipv4Packet;
use tokio::time::Instant;

use super::counters::count;
use super::packet::{Body, Packet};
use super::reply::{self, Unreachable};
use super::track::{Connection, Side, Sign};
use super::vm::Vm;
use crate::log::{FlowEvent, FlowRecord};
use crate::rules::Transport;

/// All VMs of a gateway.
#[derive(Clone, Default)]
pub(crate) struct Switch {
    seats: Arc<RwLock<HashMap<Ipv4Addr, Arc<Vm>>>>,
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A VM knows its switch, so its VMs are not shown.
        f.debug_struct("Switch").finish_non_exhaustive()
    }
}

impl Switch {
    /// `false`: another VM has that address.
    pub(crate) fn add(&self, vm: &Arc<Vm>) -> bool {
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        if seats.contains_key(&vm.seat.address) {
            return false;
        }
        seats.insert(vm.seat.address, vm.clone());
        true
    }

    pub(crate) fn remove(&self, address: Ipv4Addr) {
        let mut seats = self.seats.write().unwrap_or_else(PoisonError::into_inner);
        seats.remove(&address);
        for vm in seats.values() {
            vm.tracks().forget(address);
        }
    }

    pub(crate) fn by_address(&self, address: Ipv4Addr) -> Option<Arc<Vm>> {
        self.seats.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Vm>> {
        let seats = self.seats.read().unwrap_or_else(PoisonError::into_inner);
        seats.values().find(|vm| vm.name() == name).cloned()
    }
}

impl Vm {
    /// Whether both VMs let each other in.
    pub(crate) fn may_reach(&self, other: &Vm) -> bool {
        if self.guard.policy().allow_inter_vm && other.guard.policy().allow_inter_vm {
            return true;
        }
        let ours = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let theirs = other.groups.read().unwrap_or_else(PoisonError::into_inner);
        !ours.is_disjoint(&theirs)
    }

    pub(crate) fn to_neighbour(self: &Arc<Self>, packet: &Packet<'_>) {
        // Who may not reach a VM does not learn whether there is one.
        let other = self.switch.by_address(packet.target).filter(|other| self.may_reach(other));
        let Some(other) = other else {
            return self.shut_out(packet, || {
                let own = self.guard.policy().allow_inter_vm;
                let who = if own { "the other VM" } else { "this VM" };
                format!("{who} has no allow_inter_vm, and they share no group")
            });
        };
        match self.admit(&other, packet) {
            Ok(()) => self.pass_to(&other, packet),
            Err(message) => self.shut_out(packet, || message),
        }
    }

    fn admit(&self, other: &Vm, packet: &Packet<'_>) -> Result<(), String> {
        let (transport, source, target, opens, sign) = match &packet.body {
            Body::Tcp(segment) => {
                let sign = match (segment.rst, segment.fin) {
                    (true, _) => Sign::Reset,
                    (false, true) => Sign::End,
                    (false, false) => Sign::Data,
                };
                (Transport::Tcp, segment.source, segment.target, segment.opens(), sign)
            }
            Body::Udp(datagram) => (Transport::Udp, datagram.source, datagram.target, true, Sign::Data),
            Body::Ping { .. } | Body::Icmp => return Ok(()),
            Body::Other => return Err("only TCP, UDP and ping pass between VMs".to_owned()),
        };
        let from = SocketAddrV4::new(packet.source, source);
        let to = SocketAddrV4::new(packet.target, target);
        let now = Instant::now();
        let reply = Connection { transport, opener: to, target: from };
        if self.guard.policy().accepts_port(source) && other.tracks().pass(&reply, Side::Target, sign, now) {
            return Ok(());
        }
        if !other.guard.policy().accepts_port(target) {
            return Err(format!("port {target} is not among the other VM's allowed_ports"));
        }
        let connection = Connection { transport, opener: from, target: to };
        let mut tracks = self.tracks();
        if tracks.pass(&connection, Side::Opener, sign, now) {
            return Ok(());
        }
        if !opens {
            return Err("it belongs to no connection that was opened".to_owned());
        }
        if !tracks.open(connection, now) {
            return Err("this VM has too many connections to others".to_owned());
        }
        drop(tracks);
        let mut record = FlowRecord::now(FlowEvent::Opened, transport, to);
        record.guest_port = Some(source);
        record.name = Some(other.name());
        record.rule = Some("allow_inter_vm".to_owned());
        self.log.record(record);
        Ok(())
    }

    fn pass_to(&self, other: &Vm, packet: &Packet<'_>) {
        if packet.hops <= 1 {
            return count(&self.counters.other);
        }
        let mut frame = other.link.frame(packet.bytes.len());
        frame.packet().copy_from_slice(packet.bytes);
        let mut head = Ipv4Packet::new_unchecked(frame.packet());
        head.set_hop_limit(packet.hops - 1);
        head.fill_checksum();
        other.send(Some(frame));
    }

    fn shut_out(&self, packet: &Packet<'_>, message: impl FnOnce() -> String) {
        let (transport, source, target) = match &packet.body {
            Body::Tcp(segment) => (Transport::Tcp, Some(segment.source), segment.target),
            Body::Udp(datagram) => (Transport::Udp, Some(datagram.source), datagram.target),
            Body::Ping { .. } | Body::Other => (Transport::Icmp, None, 0),
            Body::Icmp => return,
        };
        let to = SocketAddrV4::new(packet.target, target);
        self.complain(FlowEvent::Refused, transport, source, to, message);
        match &packet.body {
            Body::Tcp(segment) => self.send(reply::reset(&self.link, packet, segment)),
            Body::Udp(_) | Body::Ping { .. } | Body::Other => {
                self.unreachable(packet, Unreachable::Prohibited)
            }
            Body::Icmp => {}
        }
    }
}
