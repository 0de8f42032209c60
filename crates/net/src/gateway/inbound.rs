//! Connections from the host into a guest, through a forward.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::flow::Flow;
use super::host::Host;
use super::stack::Stack;
use super::table::{FlowKey, OpenError};
use super::vm::Vm;
use crate::flow::account::Account;
use crate::flow::forward::{Inbound, NOT_RUNNING};
use crate::flow::log::FlowEvent;
use crate::policy::Transport;

/// Ports of the gateway that are the source of connections into the guest.
const OWN_PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// Source ports that are tried before a connection is given up.
const TRIES: usize = 64;

impl Inbound for Vm {
    fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    fn open_inbound(
        self: &Arc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        guest_port: u16,
        stop: &CancellationToken,
    ) {
        // It only affects how soon small pieces are sent.
        let _ = stream.set_nodelay(true);
        let host = Host::tcp(stream);
        let SocketAddr::V4(client) = client else { return };
        if self.is_vacant() {
            let message = || NOT_RUNNING.to_owned();
            return self.complain(FlowEvent::Refused, Transport::Tcp, Some(guest_port), client, message);
        }
        let mut entry = Err(OpenError::Taken);
        let mut ours = SocketAddrV4::new(self.settings.address, 0);
        for _ in 0..TRIES {
            ours.set_port(self.own_port());
            entry = self.flows.open(FlowKey { guest_port, remote: ours });
            if !matches!(entry, Err(OpenError::Taken)) {
                break;
            }
        }
        let Ok((ticket, packets)) = entry else {
            let message = || "the VM has reached its limit of connections".to_owned();
            return self.complain(FlowEvent::Refused, Transport::Tcp, Some(guest_port), client, message);
        };
        let guest = SocketAddrV4::new(self.identity.address, guest_port);
        let (link, mtu) = (self.link.clone(), self.settings.mtu);
        let opened = self.buffers().and_then(|buffers| Stack::connect(link, mtu, buffers, ours, guest));
        let stack = match opened {
            Ok(stack) => stack,
            Err(problem) => {
                let message = || format!("not enough memory for another connection: {problem}");
                return self.complain(FlowEvent::Refused, Transport::Tcp, Some(guest_port), client, message);
            }
        };
        let account = Account::opened(&self.log, Transport::Tcp, guest_port, client, "port_forward", None)
            .if_not_opened(format!("nothing listens on port {guest_port} in the guest"));
        let flow = Flow { stack, packets, host, gate: None, account };
        let carry = stop.clone().run_until_cancelled_owned(async move {
            flow.run().await;
            drop(ticket);
        });
        self.spawn(carry.map(drop));
    }
}

impl Vm {
    fn own_port(&self) -> u16 {
        let count = OWN_PORTS.end() - OWN_PORTS.start() + 1;
        OWN_PORTS.start() + self.next_port.fetch_add(1, Ordering::Relaxed) % count
    }
}
