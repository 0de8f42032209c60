//! Carries datagrams to the outside, through a socket of the host for each pair of guest port and destination.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::packet::{self, Body, Datagram, Packet};
use super::pool::{Buffer, Pool};
use super::reply::{self, Unreachable};
use super::table::{Delivery, FlowKey, OpenError};
use super::vm::Vm;
use crate::flow::account::Account;
use crate::flow::limits::UDP_IDLE;
use crate::flow::log::FlowEvent;
use crate::policy::{Transport, Verdict};

/// The largest datagram there can be.
const LARGEST: usize = 64 * 1024;

/// Size of the headers of IP and UDP.
const HEADS: usize = 28;

impl Vm {
    /// Sends a datagram through its association, which is created if the policy allows it.
    pub(crate) fn to_association(self: &Arc<Self>, packet: &Packet<'_>, datagram: &Datagram<'_>) {
        let to = SocketAddrV4::new(packet.target, datagram.target);
        let key = FlowKey { guest_port: datagram.source, remote: to };
        let copy = || self.link.pool().copy(packet.bytes);
        match self.associations.deliver(&key, copy) {
            Delivery::Delivered => return,
            Delivery::Lost => return self.overflowed(),
            Delivery::NoFlow => {}
        }
        let changed = self.guard.watch();
        let (rule, name) = match self.guard.judge(Transport::Udp, to) {
            Verdict::Allowed { rule, name } => (rule, name),
            Verdict::Refused(refusal) => {
                let message = || refusal.message;
                self.complain(FlowEvent::Refused, Transport::Udp, Some(key.guest_port), to, message);
                return self.unreachable(packet, Unreachable::Prohibited);
            }
        };
        let entry = match self.associations.open(key) {
            Err(OpenError::Full) => {
                self.associations.make_room();
                self.associations.open(key)
            }
            entry => entry,
        };
        let Ok((ticket, packets)) = entry else { return self.overflowed() };
        self.associations.deliver(&key, copy);
        let vm = self.clone();
        self.spawn(async move {
            let socket = vm.settings.dialer.datagrams(to).await;
            match socket {
                Ok(socket) => {
                    let account =
                        Account::opened(&vm.log, Transport::Udp, key.guest_port, to, &rule, name.as_deref());
                    let association = Association { vm: &vm, key, name, socket, packets, account };
                    association.carry(changed).await;
                }
                Err(problem) => {
                    let message = || format!("no socket could be opened: {problem}");
                    vm.complain(FlowEvent::Closed, Transport::Udp, Some(key.guest_port), to, message);
                }
            }
            drop(ticket);
        });
    }
}

/// Readiness for a received datagram, or for an error about a sent one.
const NEWS: Interest = Interest::READABLE.add(Interest::ERROR);

/// Receives a datagram. The buffer is taken only then: a waiting association needs none.
fn hear(socket: &UdpSocket, pool: &Pool) -> io::Result<(Buffer, usize)> {
    let mut space = pool.take(LARGEST);
    let (_, length) = recv(socket, &mut space[..], RecvFlags::DONTWAIT)?;
    Ok((space, length))
}

struct Association<'a> {
    vm: &'a Vm,
    key: FlowKey,
    name: Option<String>,
    socket: UdpSocket,
    packets: mpsc::Receiver<Buffer>,
    account: Account,
}

impl Association<'_> {
    async fn carry(mut self, mut changed: tokio::sync::watch::Receiver<u64>) {
        loop {
            // The policy comes first, so that nothing passes that is no longer allowed.
            tokio::select! {
                biased;
                Ok(()) = changed.changed() => {
                    let name = self.name.as_deref();
                    if let Verdict::Refused(refusal) = self.vm.guard.rejudge(Transport::Udp, self.key.remote, name) {
                        return self.account.set_message(refusal.message);
                    }
                }
                packet = self.packets.recv() => match packet {
                    Some(packet) => self.up(&packet).await,
                    // Another association has replaced it in the table.
                    None => return,
                },
                received = self.socket.async_io(NEWS, || hear(&self.socket, self.vm.link.pool())) => match received {
                    Ok((space, length)) => self.down(&space[..length]),
                    Err(problem) => self.failed(&problem),
                },
                () = tokio::time::sleep(UDP_IDLE) => return,
            }
        }
    }

    async fn up(&mut self, packet: &Buffer) {
        let Ok(Packet { body: Body::Udp(datagram), .. }) = packet::parse(packet) else { return };
        match self.socket.send(datagram.payload).await {
            Ok(length) => self.account.up += length as u64,
            Err(problem) => self.failed(&problem),
        }
    }

    fn down(&mut self, payload: &[u8]) {
        if payload.len() + HEADS > usize::from(self.vm.settings.mtu) {
            return self.vm.overflowed();
        }
        self.account.down += payload.len() as u64;
        let remote = (*self.key.remote.ip(), self.key.remote.port());
        let guest = (self.vm.identity.address, self.key.guest_port);
        self.vm.send(Some(reply::datagram(&self.vm.link, remote, guest, payload)));
    }

    /// Passes an error about an earlier datagram on to the guest.
    fn failed(&self, problem: &io::Error) {
        let unreachable = [io::ErrorKind::HostUnreachable, io::ErrorKind::NetworkUnreachable];
        let why = if problem.kind() == io::ErrorKind::ConnectionRefused {
            Unreachable::Port
        } else if unreachable.contains(&problem.kind()) {
            Unreachable::Host
        } else {
            // Too long, or no memory: dropped, as on any network.
            return self.vm.overflowed();
        };
        let guest = (self.vm.identity.address, self.key.guest_port);
        let remote = (*self.key.remote.ip(), self.key.remote.port());
        self.vm.send(Some(reply::datagram_unreachable(&self.vm.link, guest, remote, why)));
    }
}
