//! A gateway with VMs on it, and servers for them.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentiso_core::network::NetworkPolicy;
use agentiso_net::dns::Names;
use agentiso_net::dns::{Neighbours, RefusedName, Reply};
use agentiso_net::flow::log::{FlowEvent, FlowLog, FlowRecord};
use agentiso_net::flow::{Dialer, NetIdentity, Settings};
use agentiso_net::gateway::{Attachment, Gateway};
use agentiso_net::policy::{Guard, HostAddresses, Refusal, RefusalCode, Transport};
use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener};

use crate::guest::Guest;

pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);

/// An address that looks public and is not in use.
pub(crate) fn public(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), port)
}

pub(crate) fn internet() -> NetworkPolicy {
    NetworkPolicy { allow_internet: true, ..NetworkPolicy::default() }
}

/// A dialer that connects to the loopback. Addresses without a route never answer.
#[derive(Debug, Default)]
pub(crate) struct TestDialer {
    routes: Mutex<HashMap<SocketAddrV4, SocketAddr>>,
}

impl TestDialer {
    fn route(&self, to: SocketAddrV4) -> Option<SocketAddr> {
        self.routes.lock().unwrap().get(&to).copied()
    }
}

impl Dialer for TestDialer {
    fn connect(&self, to: SocketAddrV4) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(async move {
            match self.route(to) {
                Some(address) => TcpStream::connect(address).await,
                None => std::future::pending().await,
            }
        })
    }

    fn datagrams(&self, to: SocketAddrV4) -> BoxFuture<'_, io::Result<UdpSocket>> {
        Box::pin(async move {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            socket.connect(self.route(to).ok_or(io::ErrorKind::HostUnreachable)?).await?;
            Ok(socket)
        })
    }
}

/// A name service that answers the name of a neighbour with its address, and echoes everything else.
#[derive(Debug)]
struct TestNames;

impl Names for TestNames {
    fn answer<'a>(
        &'a self,
        _: &'a Guard,
        neighbours: &'a dyn Neighbours,
        query: &'a [u8],
        _: Transport,
    ) -> BoxFuture<'a, Option<Reply>> {
        let found = std::str::from_utf8(query).ok().and_then(|name| neighbours.address_of(name));
        let answer = found.map_or_else(|| query.to_vec(), |address| address.to_string().into_bytes());
        let refusal =
            || Refusal { code: RefusalCode::NameNotAllowed, message: "the test refuses it".to_owned() };
        let refused = query
            .starts_with(b"refuse")
            .then(|| RefusedName { name: "refused".to_owned(), refusal: refusal() });
        Box::pin(std::future::ready(Some(Reply { bytes: answer, refused })))
    }
}

pub(crate) struct World {
    pub(crate) gateway: Gateway,
    dialer: Arc<TestDialer>,
    dir: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let dialer = Arc::new(TestDialer::default());
        let mut settings = Settings::new(Arc::new(TestNames));
        settings.dialer = dialer.clone();
        change(&mut settings);
        Self { gateway: Gateway::new(settings), dialer, dir: tempfile::tempdir().unwrap() }
    }

    /// Routes an address to a server.
    pub(crate) fn route(&self, to: SocketAddrV4, server: SocketAddr) {
        self.dialer.routes.lock().unwrap().insert(to, server);
    }

    /// A VM whose address ends in `number`.
    pub(crate) fn vm(&self, number: u8, policy: NetworkPolicy) -> TestVm {
        let identity = NetIdentity {
            name: format!("vm{number}"),
            mac: [0x52, 0x54, 0, 0, 0, number],
            address: Ipv4Addr::new(10, 42, 0, number),
        };
        let socket = self.dir.path().join(format!("{number}.sock"));
        let listener = UnixListener::bind(&socket).unwrap();
        let guard = Guard::new(policy, HostAddresses::fixed([]), GATEWAY);
        let log = FlowLog::new();
        let attachment = self.gateway.attach(identity.clone(), guard.clone(), log.clone(), listener).unwrap();
        TestVm { identity, guard, log, attachment, socket }
    }
}

pub(crate) struct TestVm {
    pub(crate) identity: NetIdentity,
    pub(crate) guard: Guard,
    pub(crate) log: FlowLog,
    pub(crate) attachment: Attachment,
    pub(crate) socket: PathBuf,
}

impl TestVm {
    /// A guest on a new connection, as QEMU opens it.
    pub(crate) async fn guest(&self) -> Guest {
        Guest::connect(&self.socket, &self.identity).await
    }

    pub(crate) fn find(&self, event: FlowEvent) -> Vec<FlowRecord> {
        self.log.tail(1000).into_iter().filter(|record| record.event == event).collect()
    }

    /// Waits for the first record of this event.
    pub(crate) async fn recorded(&self, event: FlowEvent) -> FlowRecord {
        eventually(|| self.find(event).into_iter().next()).await
    }
}

/// Polls until there is an answer, for ten seconds.
pub(crate) async fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), asking).await.expect("it did not happen")
}

/// A server that treats every connection the same. It ends with the test's runtime.
pub(crate) async fn server<F: Future<Output = ()> + Send>(
    serve: impl Fn(TcpStream) -> F + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let serve = serve.clone();
            tokio::spawn(async move { serve(stream).await });
        }
    });
    address
}

pub(crate) async fn echo_server() -> SocketAddr {
    server(async |mut stream: TcpStream| {
        let (mut reading, mut writing) = stream.split();
        let _ = tokio::io::copy(&mut reading, &mut writing).await;
        let _ = writing.shutdown().await;
    })
    .await
}

/// A server that reads a [`pattern`] to the end and answers with its length.
pub(crate) async fn sink_server() -> SocketAddr {
    server(async |mut stream: TcpStream| {
        let (mut check, mut buffer) = (Check::new(), vec![0; 256 * 1024]);
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            check.add(&buffer[..count]);
        }
        let _ = stream.write_all(check.length.to_string().as_bytes()).await;
    })
    .await
}

/// A server that sends this many bytes of a [`pattern`] and closes.
pub(crate) async fn source_server(length: usize) -> SocketAddr {
    server(move |mut stream: TcpStream| async move {
        let block = pattern();
        let mut sent = 0;
        while sent < length {
            let count = block.len().min(length - sent);
            if stream.write_all(&block[..count]).await.is_err() {
                return;
            }
            sent += count;
        }
    })
    .await
}

/// Bytes that differ from their neighbours. Their number divides no buffer size.
pub(crate) fn pattern() -> Vec<u8> {
    (0..99_991_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Compares received bytes with the repeated [`pattern`].
#[derive(Debug)]
pub(crate) struct Check {
    pattern: Vec<u8>,
    pub(crate) length: usize,
}

impl Check {
    pub(crate) fn new() -> Self {
        Self { pattern: pattern(), length: 0 }
    }

    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let expected = &self.pattern[self.length % self.pattern.len()..];
            let (piece, rest) = bytes.split_at(bytes.len().min(expected.len()));
            assert!(piece == &expected[..piece.len()], "other bytes than were sent, near {}", self.length);
            self.length += piece.len();
            bytes = rest;
        }
    }
}
