//! Services at ports of the gateway's own address, which the daemon provides for guests.

use std::net::SocketAddrV4;
use std::sync::Arc;

use tokio::net::UnixStream;

use super::flow::Flow;
use super::host::Host;
use super::packet::{Packet, Segment};
use super::reply;
use super::stack::Stack;
use super::table::FlowKey;
use super::vm::Vm;
use crate::flow::Service;
use crate::flow::account::Account;
use crate::flow::log::FlowEvent;
use crate::flow::service::NOT_ADMITTED;
use crate::policy::Transport;

/// Size of the buffer for each direction.
const BUFFER: usize = 64 * 1024;

impl Vm {
    /// The daemon's service at a port, if there is one.
    pub(crate) fn service_at(&self, port: u16) -> Option<Arc<dyn Service>> {
        self.settings.services.iter().find(|service| service.port() == port).cloned()
    }

    pub(crate) fn open_service(
        self: &Arc<Self>,
        packet: &Packet<'_>,
        segment: &Segment,
        service: Arc<dyn Service>,
    ) {
        let us = SocketAddrV4::new(packet.target, segment.target);
        let guest = self.identity.address;
        if !service.admits(guest) {
            self.complain(FlowEvent::Refused, Transport::Tcp, Some(segment.source), us, || {
                NOT_ADMITTED.to_owned()
            });
            return self.send(reply::reset(&self.link, packet, segment));
        }
        let account = Account::opened(&self.log, Transport::Tcp, segment.source, us, "gateway", None);
        self.open_own(packet, segment, account, move |stream| service.serve(guest, Box::new(stream)));
    }

    /// Opens a connection to a service of our own.
    pub(crate) fn open_own<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        packet: &Packet<'_>,
        segment: &Segment,
        account: Account,
        serve: impl FnOnce(UnixStream) -> F,
    ) {
        let us = SocketAddrV4::new(packet.target, segment.target);
        let key = FlowKey { guest_port: segment.source, remote: us };
        let Ok((ticket, packets)) = self.flows.open(key) else {
            return self.send(reply::reset(&self.link, packet, segment));
        };
        let Some(syn) = self.link.pool().copy(packet.bytes) else { return self.overflowed() };
        let Ok((ours, theirs)) = UnixStream::pair() else {
            return self.send(reply::reset(&self.link, packet, segment));
        };
        let opened = self.budget.buffers(BUFFER);
        let opened =
            opened.and_then(|buffers| Stack::listen(self.link.clone(), self.settings.mtu, buffers, us));
        let Ok(mut stack) = opened else {
            return self.send(reply::reset(&self.link, packet, segment));
        };
        stack.push(syn);
        let flow = Flow { stack, packets, host: Host::service(theirs), gate: None, account };
        let served = serve(ours);
        self.spawn(async move {
            // The service is dropped with the flow, and the flow ends when the service has closed its side.
            let serving = async {
                served.await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                _ = flow.run() => {}
                () = serving => {}
            }
            drop(ticket);
        });
    }
}
