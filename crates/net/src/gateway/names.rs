//! The gateway's name service: port 53 of the gateway, over UDP and TCP.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use super::packet::{Datagram, Packet, Segment};
use super::reply;
use super::vm::Vm;
use crate::dns::{Neighbours, RefusedName, Reply};
use crate::flow::account::Account;
use crate::flow::log::FlowEvent;
use crate::flow::names::{PORT, serve};
use crate::policy::Transport;

impl Vm {
    /// Answers a query over UDP.
    pub(crate) fn query(self: &Arc<Self>, packet: &Packet<'_>, datagram: &Datagram<'_>) {
        // Dropped over the limit: the guest asks again later.
        let Ok(permit) = self.queries.clone().try_acquire_owned() else { return self.overflowed() };
        let Some(query) = self.link.pool().copy(datagram.payload) else { return self.overflowed() };
        let (vm, us, guest) = (self.clone(), packet.target, (packet.source, datagram.source));
        self.spawn(async move {
            if let Some(answer) = vm.answer(&query, Transport::Udp, guest.1).await {
                vm.send(Some(reply::datagram(&vm.link, (us, PORT), guest, &answer)));
            }
            drop(permit);
        });
    }

    async fn answer(&self, query: &[u8], transport: Transport, guest_port: u16) -> Option<Vec<u8>> {
        let Reply { bytes, refused } =
            self.settings.names.answer(&self.guard, self, query, transport).await?;
        if let Some(RefusedName { name, refusal }) = refused {
            let us = SocketAddrV4::new(self.settings.address, PORT);
            self.complain_about(FlowEvent::Refused, transport, Some(guest_port), us, Some(name), || {
                refusal.message
            });
        }
        Some(bytes)
    }

    /// Opens a connection to the name service.
    pub(crate) fn open_names(self: &Arc<Self>, packet: &Packet<'_>, segment: &Segment) {
        let (vm, guest_port) = (self.clone(), segment.source);
        self.open_own(packet, segment, Account::unlogged(), move |stream| async move {
            let vm = &*vm;
            let ask = |query: Vec<u8>| async move { vm.answer(&query, Transport::Tcp, guest_port).await };
            serve(stream, &vm.queries, ask).await;
        });
    }
}

impl Neighbours for Vm {
    fn address_of(&self, host: &str) -> Option<Ipv4Addr> {
        let other = self.switch.by_name(host)?;
        self.may_reach(&other).then_some(other.identity.address)
    }
}
