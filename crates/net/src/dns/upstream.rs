//! Asks the host's resolvers: over UDP from a random port with a random id, over TCP if an answer is too long, and the
//! next resolver if one does not answer.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};

use super::found::Found;
use super::wire;

/// Timeout for one resolver. Most answer in some milliseconds; a cold cache needs a second.
const TRY: Duration = Duration::from_millis(1500);

/// Timeout for all of them together. Programs in the guest give up after five seconds.
pub(super) const TOTAL: Duration = Duration::from_millis(4500);

/// Number of attempts for each resolver: a datagram may be lost, and a resolver that fails once may not fail twice.
const ROUNDS: usize = 2;

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(200);

/// Payload that fits into one packet anywhere (as DNS Flag Day 2020 settled).
const UDP_PAYLOAD: u16 = 1232;

/// Number of resolvers that are used. More would not be reached within [`TOTAL`].
const MAX_UPSTREAMS: usize = 4;

// A single resolver gets all its rounds within the total time.
const _: () = assert!((TRY.as_millis() + PAUSE.as_millis()) * ROUNDS as u128 <= TOTAL.as_millis());

#[derive(Debug, Error)]
enum UpstreamError {
    #[error("{0} does not answer")]
    Silent(SocketAddr),
    #[error("{0} cannot be reached: {1}")]
    Io(SocketAddr, #[source] io::Error),
    #[error("{0} answers {1}")]
    Code(SocketAddr, ResponseCode),
    #[error("{0} sent a malformed DNS answer")]
    Garbage(SocketAddr),
}

#[derive(Debug)]
pub(super) struct Upstreams {
    addresses: Vec<SocketAddr>,
    /// Index of the resolver that answered last, which is asked first: a dead one costs its timeout once, not with
    /// every name.
    first: AtomicUsize,
}

impl Upstreams {
    pub(super) fn new(mut addresses: Vec<SocketAddr>) -> Self {
        addresses.truncate(MAX_UPSTREAMS);
        Self { addresses, first: AtomicUsize::new(0) }
    }

    /// The answer, or the failure of each resolver as text.
    pub(super) async fn ask(&self, name: &Name, kind: RecordType) -> Result<Found, String> {
        if self.addresses.is_empty() {
            return Err("no DNS server is configured; set network.dns_servers".to_owned());
        }
        let deadline = Instant::now() + TOTAL;
        let mut last = vec![None; self.addresses.len()];
        for round in 0..ROUNDS {
            if round > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let first = self.first.load(Ordering::Relaxed);
            for index in (0..self.addresses.len()).map(|n| (first + n) % self.addresses.len()) {
                if Instant::now() >= deadline {
                    break;
                }
                let end = deadline.min(Instant::now() + TRY);
                match ask_one(self.addresses[index], name, kind, end).await {
                    Ok(found) => {
                        self.first.store(index, Ordering::Relaxed);
                        return Ok(found);
                    }
                    Err(error) => last[index] = Some(error.to_string()),
                }
            }
        }
        Err(last.into_iter().flatten().collect::<Vec<_>>().join("; "))
    }
}

async fn ask_one(
    server: SocketAddr,
    name: &Name,
    kind: RecordType,
    end: Instant,
) -> Result<Found, UpstreamError> {
    let mut reply = over_udp(server, &wire::ask(name, kind, Some(UDP_PAYLOAD)), end).await?;
    if reply.metadata.response_code == ResponseCode::FormErr {
        // Some small routers do not support EDNS.
        reply = over_udp(server, &wire::ask(name, kind, None), end).await?;
    }
    if reply.metadata.truncation {
        reply = over_tcp(server, &wire::ask(name, kind, None)).await?;
    }
    Found::in_answer(name, kind, &reply).ok_or(UpstreamError::Code(server, reply.metadata.response_code))
}

async fn over_udp(server: SocketAddr, asked: &Message, end: Instant) -> Result<Message, UpstreamError> {
    let io = |error| UpstreamError::Io(server, error);
    let query = asked.to_vec().map_err(|_| UpstreamError::Garbage(server))?;
    // Every question has its own socket: the kernel chooses a random port, and connecting makes it drop datagrams from
    // other addresses and report refusals.
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await.map_err(io)?;
    socket.connect(server).await.map_err(io)?;
    socket.send(&query).await.map_err(io)?;
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let len = timeout_at(end, socket.recv(&mut buffer))
            .await
            .map_err(|_| UpstreamError::Silent(server))?
            .map_err(io)?;
        // A datagram that does not answer the question may be forged; the real answer may still come.
        if let Some(reply) = wire::read_reply(asked, &buffer[..len]) {
            return Ok(reply);
        }
    }
}

async fn over_tcp(server: SocketAddr, asked: &Message) -> Result<Message, UpstreamError> {
    let query = asked.to_vec().map_err(|_| UpstreamError::Garbage(server))?;
    let len = u16::try_from(query.len()).map_err(|_| UpstreamError::Garbage(server))?;
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(&[&len.to_be_bytes()[..], &query].concat()).await?;
        let mut reply = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut reply).await?;
        Ok(reply)
    };
    let reply = timeout(TRY, exchange)
        .await
        .map_err(|_| UpstreamError::Silent(server))?
        .map_err(|error| UpstreamError::Io(server, error))?;
    wire::read_reply(asked, &reply).ok_or(UpstreamError::Garbage(server))
}
