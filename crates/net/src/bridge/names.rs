//! The name service, as the guests see it: port 53 of the gateway, which the kernel brings to our sockets.
//!
//! An address is in the rules before the guest is told of it, so what it opens next is let out.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::{RData, Record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::Instant;

use super::hub::Hub;
use super::place::Place;
use crate::dns::{Neighbours, RefusedName, Reply};
use crate::gateway::names::{IDLE, PORT, SHORTEST};
use crate::rules::{GRACE, Transport};

/// Queries are small; what is longer is none.
const MAX_QUERY: usize = 4096;

/// Until a socket that failed is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers queries over UDP, until the bridge is closed.
pub(super) async fn serve_datagrams(hub: Arc<Hub>, socket: UdpSocket) {
    let socket = Arc::new(socket);
    let mut space = vec![0; MAX_QUERY];
    loop {
        let (length, client) = match socket.recv_from(&mut space).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "a query cannot be received");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(place) = hub.place_of(client) else { continue };
        // Over the limit it is dropped: the guest asks again, and later.
        let Ok(permit) = place.queries.clone().try_acquire_owned() else { continue };
        let (hub, socket, query) = (hub.clone(), socket.clone(), space[..length].to_vec());
        let asking = place.clone();
        place.spawn(async move {
            if let Some(answer) = answer(&hub, &asking, &query, Transport::Udp, client.port()).await {
                // A guest that is gone needs no answer.
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
                let Some(place) = hub.place_of(client) else { continue };
                let Ok(permit) = place.flows.clone().try_acquire_owned() else { continue };
                let (hub, asking) = (hub.clone(), place.clone());
                place.spawn(async move {
                    serve(&hub, &asking, stream, client).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for names cannot be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(hub: &Hub, place: &Place, mut stream: TcpStream, client: SocketAddr) {
    let mut query = Vec::new();
    loop {
        let received = tokio::time::timeout(IDLE, async {
            let length = stream.read_u16().await.ok().filter(|length| *length >= SHORTEST)?;
            query.resize(usize::from(length), 0);
            stream.read_exact(&mut query).await.ok()
        });
        let Ok(Some(_)) = received.await else { return };
        let Ok(_permit) = place.queries.acquire().await else { return };
        let Some(answer) = answer(hub, place, &query, Transport::Tcp, client.port()).await else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        let message = [&length.to_be_bytes()[..], &answer].concat();
        if stream.write_all(&message).await.is_err() {
            return;
        }
    }
}

async fn answer(
    hub: &Hub,
    place: &Place,
    query: &[u8],
    transport: Transport,
    guest_port: u16,
) -> Option<Vec<u8>> {
    let neighbours = Known { hub, place };
    let names = &hub.settings.names;
    let Reply { bytes, refused } = names.answer(&place.guard, &neighbours, query, transport).await?;
    if let Some(RefusedName { name, refusal }) = refused {
        let us = SocketAddrV4::new(hub.settings.address, PORT);
        place.refused(transport, Some(guest_port), us, Some(name), refusal.message);
    }
    hub.learn(place, &told(&bytes));
    Some(bytes)
}

/// The addresses in an answer, and until when the guest may rely on them.
fn told(answer: &[u8]) -> Vec<(Ipv4Addr, Instant)> {
    let now = Instant::now();
    let Ok(message) = Message::from_vec(answer) else { return Vec::new() };
    let address = |record: &Record| {
        let RData::A(address) = &record.data else { return None };
        Some((address.0, now + Duration::from_secs(record.ttl.into()) + GRACE))
    };
    message.answers.iter().filter_map(address).collect()
}

/// The machines that one of them may reach by name.
struct Known<'a> {
    hub: &'a Hub,
    place: &'a Place,
}

impl Neighbours for Known<'_> {
    fn address_of(&self, host: &str) -> Option<Ipv4Addr> {
        let other = self.hub.by_name(host)?;
        self.place.may_reach(&other).then_some(other.seat.address)
    }
}
