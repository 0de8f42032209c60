//! The name service for guests: port 53 of the gateway, which the kernel redirects to our sockets.
//!
//! An address is added to the rules before the guest receives it, so that its next connection is let out.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::{RData, Record};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::Instant;

use super::hub::Hub;
use super::vm::Vm;
use crate::dns::{Neighbours, RefusedName, Reply};
use crate::flow::names::{PORT, serve};
use crate::policy::{GRACE, Transport};

/// Longest query.
const MAX_QUERY: usize = 4096;

/// Pause after a socket has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers queries over UDP, until the bridge is closed.
pub(super) async fn serve_datagrams(hub: Arc<Hub>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut space = vec![0; MAX_QUERY];
    loop {
        let (length, client) = match socket.recv_from(&mut space).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "cannot receive a DNS query");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(vm) = hub.vm_of(client) else { continue };
        // Dropped over the limit: the guest asks again later.
        let Ok(permit) = vm.queries.clone().try_acquire_owned() else { continue };
        let (hub, socket, query) = (hub.clone(), socket.clone(), space[..length].to_vec());
        let asking = vm.clone();
        vm.spawn(async move {
            if let Some(answer) = answer(&hub, &asking, &query, Transport::Udp, client.port()).await {
                // An error means that the guest is gone and needs no answer.
                let _ = socket.send_to(&answer, client).await;
            }
            drop(permit);
        });
    }
}

/// Answers queries over TCP, until the bridge is closed.
pub(super) async fn serve_connections(hub: Arc<Hub>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let Some(vm) = hub.vm_of(client) else { continue };
                let Ok(permit) = vm.flows.clone().try_acquire_owned() else { continue };
                let (hub, asking) = (hub.clone(), vm.clone());
                vm.spawn(async move {
                    let port = client.port();
                    let (hub, vm) = (&*hub, &*asking);
                    let ask =
                        |query: Vec<u8>| async move { answer(hub, vm, &query, Transport::Tcp, port).await };
                    serve(stream, &asking.queries, ask).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a DNS connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(hub: &Hub, vm: &Vm, query: &[u8], transport: Transport, guest_port: u16) -> Option<Vec<u8>> {
    let neighbours = ReachableVms { hub, vm };
    let names = &hub.settings.names;
    let Reply { bytes, refused } = names.answer(&vm.guard, &neighbours, query, transport).await?;
    if let Some(RefusedName { name, refusal }) = refused {
        let us = SocketAddrV4::new(hub.settings.address, PORT);
        vm.refused(transport, Some(guest_port), us, Some(name), refusal.message);
    }
    hub.learn(vm, &addresses_in(&bytes));
    Some(bytes)
}

/// The addresses in an answer, each with the time until which the guest may rely on it.
fn addresses_in(answer: &[u8]) -> Vec<(Ipv4Addr, Instant)> {
    let now = Instant::now();
    let Ok(message) = Message::from_vec(answer) else { return Vec::new() };
    let address = |record: &Record| {
        let RData::A(address) = &record.data else { return None };
        Some((address.0, now + Duration::from_secs(record.ttl.into()) + GRACE))
    };
    message.answers.iter().filter_map(address).collect()
}

/// The VMs that one VM may reach by name.
struct ReachableVms<'a> {
    hub: &'a Hub,
    vm: &'a Vm,
}

impl Neighbours for ReachableVms<'_> {
    fn address_of(&self, host: &str) -> Option<Ipv4Addr> {
        let other = self.hub.by_name(host)?;
        self.vm.may_reach(&other).then_some(other.identity.address)
    }
}
