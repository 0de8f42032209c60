//! Passes packets from one VM to another if both policies allow it.
//!
//! The decision is made for every packet, so that a connection does not outlive the policies that allowed it; and for
//! every connection when a policy changes, so that both ends are reset at once.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use smoltcp::wire::{Ipv4Packet, TcpSeqNumber};
use tokio::time::Instant;

use super::counters::count;
use super::packet::{Body, Datagram, Packet};
use super::reply::{self, Unreachable};
use super::track::{Connection, CutConnection, PacketInfo, PacketKind, Side};
use super::vm::Vm;
use crate::flow::account::Account;
use crate::flow::log::FlowEvent;
use crate::policy::Transport;

/// Interval of the search for idle connections. Their closing records are that much later.
const LOOK: Duration = Duration::from_secs(60);

/// All VMs of a gateway.
#[derive(Clone, Default)]
pub(crate) struct Switch {
    vms: Arc<RwLock<HashMap<Ipv4Addr, Arc<Vm>>>>,
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The VMs are not shown, because each of them refers to this switch.
        f.debug_struct("Switch").finish_non_exhaustive()
    }
}

impl Switch {
    /// Returns `false` if another VM has that address.
    pub(crate) fn add(&self, vm: &Arc<Vm>) -> bool {
        let mut vms = self.vms.write().unwrap_or_else(PoisonError::into_inner);
        if vms.contains_key(&vm.identity.address) {
            return false;
        }
        vms.insert(vm.identity.address, vm.clone());
        true
    }

    pub(crate) fn remove(&self, address: Ipv4Addr) {
        self.vms.write().unwrap_or_else(PoisonError::into_inner).remove(&address);
    }

    /// Ends all connections of a VM that is gone, and resets their other ends: the next VM at this address must not
    /// receive their packets.
    pub(crate) fn end_connections_of(&self, vm: &Vm) {
        let gone = vm.identity.address;
        let vms = self.vms.read().unwrap_or_else(PoisonError::into_inner).clone();
        for opener in vms.values() {
            let is_own = opener.identity.address == gone;
            let why = if is_own { "the VM is gone" } else { "the other VM is gone" };
            let cut = opener
                .tracks()
                .cut(|connection| (is_own || *connection.target.ip() == gone).then(|| why.to_owned()));
            for CutConnection { connection, opener_next, target_next } in cut {
                let Connection { opener: from, target: to, .. } = connection;
                if !is_own {
                    opener.reset(to, from, target_next);
                } else if let Some(target) = vms.get(to.ip()) {
                    target.reset(from, to, opener_next);
                }
            }
        }
    }

    pub(crate) fn by_address(&self, address: Ipv4Addr) -> Option<Arc<Vm>> {
        self.vms.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Vm>> {
        let vms = self.vms.read().unwrap_or_else(PoisonError::into_inner);
        vms.values().find(|vm| vm.name() == name).cloned()
    }

    /// Ends the connections from or to a VM that are no longer allowed.
    pub(crate) fn judge_again(&self, vm: &Vm) {
        let vms = self.vms.read().unwrap_or_else(PoisonError::into_inner).clone();
        for opener in vms.values() {
            let cut = opener.tracks().cut(|connection| {
                let concerned =
                    [connection.opener.ip(), connection.target.ip()].contains(&&vm.identity.address);
                let target = vms.get(connection.target.ip()).filter(|_| concerned)?;
                opener.refusal_of(target, connection.target.port())
            });
            for CutConnection { connection, opener_next, target_next } in cut {
                let Connection { opener: from, target: to, .. } = connection;
                opener.reset(to, from, target_next);
                if let Some(target) = vms.get(to.ip()) {
                    target.reset(from, to, opener_next);
                }
            }
        }
    }
}

/// Ends a VM's connections to others as soon as they are no longer allowed, until the VM is detached.
pub(crate) async fn watch(vm: Arc<Vm>) {
    let mut changed = vm.guard.watch();
    loop {
        // The policy comes first, so that nothing passes that is no longer allowed.
        tokio::select! {
            biased;
            Ok(()) = changed.changed() => vm.switch.judge_again(&vm),
            () = tokio::time::sleep(LOOK) => vm.tracks().sweep(Instant::now()),
        }
    }
}

impl Vm {
    /// Whether both VMs allow connections between them.
    pub(crate) fn may_reach(&self, other: &Vm) -> bool {
        if self.guard.policy().allow_inter_vm && other.guard.policy().allow_inter_vm {
            return true;
        }
        let ours = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        let theirs = other.groups.read().unwrap_or_else(PoisonError::into_inner);
        !ours.is_disjoint(&theirs)
    }

    /// The reason that a port of another VM may not be reached, if any.
    fn refusal_of(&self, other: &Vm, port: u16) -> Option<String> {
        if !self.may_reach(other) {
            return Some(self.stranger());
        }
        let accepts = other.guard.policy().accepts_port(port);
        (!accepts).then(|| format!("port {port} is not among the other VM's allowed_ports"))
    }

    fn stranger(&self) -> String {
        let who = if self.guard.policy().allow_inter_vm { "the other VM" } else { "this VM" };
        format!("{who} has no allow_inter_vm, and the two are not in the same team")
    }

    /// Resets one end of a connection in the name of the other, if the next sequence number is known.
    fn reset(&self, from: SocketAddrV4, to: SocketAddrV4, next: Option<TcpSeqNumber>) {
        self.send(next.map(|sequence| reply::reset_with(&self.link, from, to, sequence, None)));
    }

    pub(crate) fn to_neighbour(self: &Arc<Self>, packet: &Packet<'_>) {
        // A guest that may not reach a VM does not learn whether it exists.
        let other = self.switch.by_address(packet.target).filter(|other| self.may_reach(other));
        let Some(other) = other else { return self.shut_out(packet, || self.stranger()) };
        if other.is_vacant() {
            return self.nobody_there(packet);
        }
        match self.admit(&other, packet) {
            Ok(()) => self.pass_to(&other, packet),
            Err(message) => self.shut_out(packet, || message),
        }
    }

    fn admit(&self, other: &Vm, packet: &Packet<'_>) -> Result<(), String> {
        let (transport, source, target, opens, kind, bytes, next) = match &packet.body {
            Body::Tcp(segment) => {
                let kind = match (segment.rst, segment.fin) {
                    (true, _) => PacketKind::Reset,
                    (false, true) => PacketKind::End,
                    (false, false) => PacketKind::Data,
                };
                let bytes =
                    segment.length.saturating_sub(usize::from(segment.syn) + usize::from(segment.fin));
                let next = segment.sequence + segment.length;
                (Transport::Tcp, segment.source, segment.target, segment.opens(), kind, bytes, Some(next))
            }
            Body::Udp(datagram) => {
                let Datagram { source, target, payload } = *datagram;
                (Transport::Udp, source, target, true, PacketKind::Data, payload.len(), None)
            }
            Body::Ping { .. } | Body::Icmp => return Ok(()),
            Body::Other => return Err("only TCP, UDP and ping pass between VMs".to_owned()),
        };
        let from = SocketAddrV4::new(packet.source, source);
        let to = SocketAddrV4::new(packet.target, target);
        let now = Instant::now();
        let info = |side| PacketInfo { side, kind, bytes, next };
        let reply = Connection { transport, opener: to, target: from };
        if self.guard.policy().accepts_port(source) && other.tracks().pass(&reply, info(Side::Target), now) {
            return Ok(());
        }
        if let Some(message) = self.refusal_of(other, target) {
            return Err(message);
        }
        let connection = Connection { transport, opener: from, target: to };
        let mut tracks = self.tracks();
        if tracks.pass(&connection, info(Side::Opener), now) {
            return Ok(());
        }
        if !opens {
            return Err("it does not belong to an open connection".to_owned());
        }
        let account = || {
            let mut account =
                Account::opened(&self.log, transport, source, to, "allow_inter_vm", Some(&other.name()));
            account.up = bytes as u64;
            account
        };
        match tracks.open(connection, account, now) {
            true => Ok(()),
            false => Err("this VM has too many connections to others".to_owned()),
        }
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

    /// Answers a packet to a VM that may be reached but does not run.
    fn nobody_there(&self, packet: &Packet<'_>) {
        match &packet.body {
            // A segment of a connection that ended with the VM.
            Body::Tcp(segment) if !segment.opens() => self.send(reply::reset(&self.link, packet, segment)),
            Body::Tcp(_) | Body::Udp(_) | Body::Ping { .. } | Body::Other => {
                self.complain_of(packet, || "the other VM is not running".to_owned());
                self.unreachable(packet, Unreachable::Host);
            }
            Body::Icmp => {}
        }
    }

    fn complain_of(&self, packet: &Packet<'_>, message: impl FnOnce() -> String) {
        let (transport, source, target) = match &packet.body {
            Body::Tcp(segment) => (Transport::Tcp, Some(segment.source), segment.target),
            Body::Udp(datagram) => (Transport::Udp, Some(datagram.source), datagram.target),
            Body::Ping { .. } | Body::Other => (Transport::Icmp, None, 0),
            Body::Icmp => return,
        };
        let to = SocketAddrV4::new(packet.target, target);
        self.complain(FlowEvent::Refused, transport, source, to, message);
    }

    fn shut_out(&self, packet: &Packet<'_>, message: impl FnOnce() -> String) {
        self.complain_of(packet, message);
        match &packet.body {
            Body::Tcp(segment) => self.send(reply::reset(&self.link, packet, segment)),
            Body::Udp(_) | Body::Ping { .. } | Body::Other => {
                self.unreachable(packet, Unreachable::Prohibited)
            }
            Body::Icmp => {}
        }
    }
}
