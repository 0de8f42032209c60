//! Connections that a guest opens to the outside.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::flow::Flow;
use super::host::Host;
use super::packet::{self, Body, Packet, Segment};
use super::pool::Buffer;
use super::reply::{self, Unreachable};
use super::stack::Stack;
use super::table::{FlowKey, OpenError};
use super::vm::Vm;
use crate::flow::account::Account;
use crate::flow::account::End;
use crate::flow::budget::Buffers;
use crate::flow::gate::Gate;
use crate::flow::log::FlowEvent;
use crate::policy::Transport;

/// Stacks kept for the next connection: one ends while the next is opened.
const SPARES: usize = 2;

/// A connection whose server has not answered yet.
struct Opening {
    key: FlowKey,
    gate: Gate,
    packets: mpsc::Receiver<Buffer>,
    /// The guest's SYN, which is answered when the server has answered.
    syn: Buffer,
    connecting: OwnedSemaphorePermit,
}

impl Vm {
    /// Opens a connection if it is allowed, and resets it at once if not.
    pub(crate) fn open_outbound(self: &Arc<Self>, packet: &Packet<'_>, segment: &Segment) {
        let to = SocketAddrV4::new(packet.target, segment.target);
        let gate = match Gate::open(self.guard.clone(), to) {
            Ok(gate) => gate,
            Err(refusal) => return self.refuse(packet, segment, || refusal.message),
        };
        let key = FlowKey { guest_port: segment.source, remote: to };
        let (ticket, packets) = match self.flows.open(key) {
            Ok(entry) => entry,
            Err(OpenError::Taken) => return,
            Err(OpenError::Full) => {
                let limit = self.settings.limits.flows;
                return self.refuse(packet, segment, || {
                    format!("the VM has {limit} connections, which is its limit")
                });
            }
        };
        let Ok(connecting) = self.connecting.clone().try_acquire_owned() else {
            let limit = self.settings.limits.connecting;
            return self.refuse(packet, segment, || {
                format!("{limit} connections wait for their servers, which is the VM's limit")
            });
        };
        // If it is dropped, the guest sends it again.
        let Some(syn) = self.link.pool().copy(packet.bytes) else { return self.overflowed() };
        let vm = self.clone();
        self.spawn(async move {
            vm.carry_outbound(Opening { key, gate, packets, syn, connecting }).await;
            drop(ticket);
        });
    }

    async fn carry_outbound(&self, opening: Opening) {
        let Opening { key, gate, mut packets, syn, connecting } = opening;
        let connect = self.settings.dialer.connect(key.remote);
        let connected = tokio::select! {
            biased;
            () = guest_gives_up(&mut packets) => return,
            connected = tokio::time::timeout(self.settings.connect_deadline, connect) => connected,
        };
        drop(connecting);
        let opened = match connected {
            Ok(Ok(stream)) => self.stack(key.remote).map(|stack| (stream, stack)),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
        };
        let problem = match opened {
            Ok((stream, mut stack)) => {
                stack.push(syn);
                let (rule, name) = (gate.rule(), gate.name());
                let account =
                    Account::opened(&self.log, Transport::Tcp, key.guest_port, key.remote, rule, name);
                let flow = Flow { stack, packets, host: Host::tcp(stream), gate: Some(gate), account };
                let (end, stack) = flow.run().await;
                self.spare(stack);
                if let End::Refused(refusal) = end {
                    let message = || refusal.message;
                    let port = Some(key.guest_port);
                    self.complain(FlowEvent::Refused, Transport::Tcp, port, key.remote, message);
                }
                return;
            }
            Err(problem) => problem,
        };
        self.tell_failure(&key, &syn, &problem);
    }

    fn stack(&self, local: SocketAddrV4) -> io::Result<Stack> {
        let spare = self.spares().pop();
        match spare {
            Some(stack) => stack.listen_again(local),
            None => Stack::listen(self.link.clone(), self.settings.mtu, self.buffers()?, local),
        }
    }

    /// Buffers for another connection.
    pub(crate) fn buffers(&self) -> io::Result<Buffers> {
        self.budget.buffers(self.settings.limits.buffer)
    }

    /// Keeps a stack for the next connection. A stack with small buffers, from a time of many connections, is not kept.
    fn spare(&self, mut stack: Stack) {
        let mut spares = self.spares();
        let is_full_size = stack.buffer() == self.settings.limits.buffer;
        if spares.len() < SPARES && is_full_size && stack.is_over() {
            spares.push(stack);
        }
    }

    /// Tells the guest that the server did not answer, in the way that makes its `connect` fail with the right error.
    fn tell_failure(&self, key: &FlowKey, syn: &Buffer, problem: &io::Error) {
        let refused = problem.kind() == io::ErrorKind::ConnectionRefused;
        let silent = problem.kind() == io::ErrorKind::TimedOut;
        let message = || match (refused, silent) {
            (true, _) => "the server refused the connection".to_owned(),
            (false, true) => "the server did not answer".to_owned(),
            (false, false) => format!("the server cannot be reached: {problem}"),
        };
        self.complain(FlowEvent::Closed, Transport::Tcp, Some(key.guest_port), key.remote, message);
        let Ok(packet) = packet::parse(syn) else { return };
        match &packet.body {
            Body::Tcp(segment) if refused => self.send(reply::reset(&self.link, &packet, segment)),
            Body::Tcp(_) | Body::Udp(_) | Body::Ping { .. } | Body::Icmp | Body::Other => {
                self.unreachable(&packet, Unreachable::Host);
            }
        }
    }

    fn refuse(&self, packet: &Packet<'_>, segment: &Segment, message: impl FnOnce() -> String) {
        let to = SocketAddrV4::new(packet.target, segment.target);
        self.complain(FlowEvent::Refused, Transport::Tcp, Some(segment.source), to, message);
        self.send(reply::reset(&self.link, packet, segment));
    }
}

/// Completes when the guest resets its connection attempt. Repeated SYNs are ignored.
async fn guest_gives_up(packets: &mut mpsc::Receiver<Buffer>) {
    while let Some(bytes) = packets.recv().await {
        if let Ok(Packet { body: Body::Tcp(Segment { rst: true, .. }), .. }) = packet::parse(&bytes) {
            return;
        }
    }
}
