//! The gateway's name service: port 53 of the gateway, over UDP and TCP.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::account::Account;
use super::packet::{Datagram, Packet, Segment};
use super::reply;
use super::vm::Vm;
use crate::dns::{Neighbours, RefusedName, Reply, Resolver};
use crate::log::FlowEvent;
use crate::rules::{Guard, Transport};

pub(crate) const PORT: u16 = 53;

/// Longest pause between two queries of one connection.
pub(crate) const IDLE: Duration = Duration::from_secs(10);

/// Shortest query: a DNS header. A shorter one ends the connection.
pub(crate) const SHORTEST: u16 = 12;

/// Answers queries for names, under the guest's policy.
pub trait Names: std::fmt::Debug + Send + Sync {
    /// The answer to send; `None` if there is none.
    fn answer<'a>(
        &'a self,
        guard: &'a Guard,
        neighbours: &'a dyn Neighbours,
        query: &'a [u8],
        transport: Transport,
    ) -> BoxFuture<'a, Option<Reply>>;
}

impl Names for Resolver {
    fn answer<'a>(
        &'a self,
        guard: &'a Guard,
        neighbours: &'a dyn Neighbours,
        query: &'a [u8],
        transport: Transport,
    ) -> BoxFuture<'a, Option<Reply>> {
        Box::pin(Self::answer(self, guard, neighbours, query, transport))
    }
}

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
            serve(&vm, stream, guest_port).await;
        });
    }
}

async fn serve(vm: &Vm, mut stream: UnixStream, guest_port: u16) {
    let mut query = Vec::new();
    loop {
        let received = tokio::time::timeout(IDLE, async {
            let length = stream.read_u16().await.ok().filter(|length| *length >= SHORTEST)?;
            query.resize(usize::from(length), 0);
            stream.read_exact(&mut query).await.ok()
        });
        let Ok(Some(_)) = received.await else { return };
        let Ok(_permit) = vm.queries.acquire().await else { return };
        let Some(answer) = vm.answer(&query, Transport::Tcp, guest_port).await else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        let message = [&length.to_be_bytes()[..], &answer].concat();
        if stream.write_all(&message).await.is_err() {
            return;
        }
    }
}

impl Neighbours for Vm {
    fn address_of(&self, host: &str) -> Option<Ipv4Addr> {
        let other = self.switch.by_name(host)?;
        self.may_reach(&other).then_some(other.identity.address)
    }
}
