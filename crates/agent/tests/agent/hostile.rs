//! Tests of guests that lie, babble or stay silent. The client fails soon and never hangs.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use agentiso_agent::{AgentClient, AgentError, HandshakeError};
use agentiso_guest::service::Agent;
use agentiso_guest::system::NoSystem;
use agentiso_protocol::io::{Acceptor, OpenError};
use agentiso_protocol::limits;
use agentiso_protocol::link::{Decoder, Event, MAX_PAYLOAD, Nonce, data_header, sync_ack};
use agentiso_protocol::schema::v1::guest_server::GuestServer;
use agentiso_vm::ListOptions;
use bytes::Bytes;
use http::Response;
use hyper::body::Frame;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;
use tower::Service as _;

use crate::support::SOON;

const PATIENCE: Duration = Duration::from_millis(400);

/// A small seeded random number generator, so that a failure can be repeated.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

async fn read_sync(guest: &mut UnixStream) -> Nonce {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 4096];
    loop {
        let count = guest.read(&mut buffer).await.expect("the host is there");
        assert!(count > 0, "the host hung up");
        let mut input = &buffer[..count];
        while let Some(event) = decoder.decode(&mut input, usize::MAX) {
            if let Event::Sync(nonce) = event {
                return nonce;
            }
        }
    }
}

fn framed(payload: &[u8]) -> Vec<u8> {
    payload.chunks(MAX_PAYLOAD).flat_map(|chunk| [&data_header(chunk.len())[..], chunk].concat()).collect()
}

/// Connects to a guest that answers the opening, sends these bytes and then only reads.
async fn connect_to(
    answer: impl FnOnce(&Nonce) -> Vec<u8> + Send + 'static,
) -> Result<AgentClient, HandshakeError> {
    let (host, mut guest) = UnixStream::pair().expect("a pair of sockets");
    let _guest = AbortOnDropHandle::new(tokio::spawn(async move {
        let nonce = read_sync(&mut guest).await;
        // The host may disconnect at any byte.
        if guest.write_all(&answer(&nonce)).await.is_ok() {
            let mut sink = vec![0; 4096];
            while guest.read(&mut sink).await.is_ok_and(|count| count > 0) {}
        }
    }));
    let connect = AgentClient::over(host, Instant::now() + PATIENCE);
    timeout(SOON + SOON, connect).await.expect("the client gives up by itself")
}

#[tokio::test]
async fn silent_guest_hits_the_deadline() {
    let result = connect_to(|_| Vec::new()).await;
    assert!(matches!(result, Err(HandshakeError::Link(OpenError::Deadline))), "{result:?}");
}

#[tokio::test]
async fn babbling_guest_hits_the_deadline() {
    let (host, mut guest) = UnixStream::pair().expect("a pair of sockets");
    let _guest = AbortOnDropHandle::new(tokio::spawn(async move {
        let noise = Noise(1).bytes(65_536);
        while guest.write_all(&noise).await.is_ok() {}
    }));
    let result = AgentClient::over(host, Instant::now() + PATIENCE).await;
    assert!(matches!(result, Err(HandshakeError::Link(OpenError::Deadline))), "{result:?}");
}

#[tokio::test]
async fn answer_with_wrong_nonce_is_ignored() {
    let result = connect_to(|nonce| sync_ack(&nonce.map(|byte| !byte)).to_vec()).await;
    assert!(matches!(result, Err(HandshakeError::Link(OpenError::Deadline))), "{result:?}");
}

#[tokio::test]
async fn noise_instead_of_frames_is_an_error() {
    for seed in 1..60 {
        let result = connect_to(move |nonce| {
            let mut noise = Noise(seed);
            let mut bytes = sync_ack(nonce).to_vec();
            // The first byte is an unknown kind; otherwise the client might wait for more noise for ever.
            bytes.push(200);
            bytes.extend(noise.bytes(3000));
            bytes
        })
        .await;
        assert!(
            matches!(result, Err(HandshakeError::Hello(_) | HandshakeError::Http2(_))),
            "{seed}: {result:?}"
        );
    }
}

#[tokio::test]
async fn noise_inside_frames_is_an_error() {
    for seed in 1..60 {
        let result = connect_to(move |nonce| {
            let mut bytes = sync_ack(nonce).to_vec();
            let mut noise = Noise(seed * 77);
            let mut payload = noise.bytes(20_000);
            // The length of the first HTTP/2 frame: short enough to be complete, and of a type that must not come
            // first.
            payload[..4].copy_from_slice(&[0, 0, 9, 0]);
            bytes.extend(framed(&payload));
            bytes
        })
        .await;
        assert!(
            matches!(result, Err(HandshakeError::Hello(_) | HandshakeError::Http2(_))),
            "{seed}: {result:?}"
        );
    }
}

#[tokio::test]
async fn oversized_frame_is_refused_by_its_header() {
    let result = connect_to(|nonce| {
        let mut bytes = sync_ack(nonce).to_vec();
        // SETTINGS, then a HEADERS frame that claims 16 MiB.
        bytes.extend(framed(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 1, 4, 0, 0, 0, 1]));
        bytes
    })
    .await;
    assert!(matches!(result, Err(HandshakeError::Hello(_))), "{result:?}");
}

#[tokio::test]
async fn endless_http2_headers_are_refused() {
    let result = connect_to(|nonce| {
        let mut payload = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
        // A HEADERS frame without END_HEADERS, then endless CONTINUATION frames.
        payload.extend([0, 0, 1, 1, 0, 0, 0, 0, 1, 0x88]);
        for _ in 0..5000 {
            payload.extend([0, 0x04, 0x00, 9, 0, 0, 0, 0, 1]);
            payload.extend([&[0x40, 0x01, b'a', 0x7f, 0x80, 0x07][..], &[b'x'; 1018][..]].concat());
        }
        let mut bytes = sync_ack(nonce).to_vec();
        bytes.extend(framed(&payload));
        bytes
    })
    .await;
    assert!(matches!(result, Err(HandshakeError::Hello(_))), "{result:?}");
}

/// One message, and then another one repeated endlessly.
struct Endless {
    first: Option<Vec<u8>>,
    again: Vec<u8>,
    sent: Arc<AtomicUsize>,
}

impl hyper::body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let message = self.first.take().unwrap_or_else(|| self.again.clone());
        let mut bytes = vec![0];
        bytes.extend((message.len() as u32).to_be_bytes());
        bytes.extend(message);
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }
}

/// A length-delimited field of a message.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
    bytes
}

/// An agent that greets correctly and answers every other call with these messages.
async fn endless(first: Vec<u8>, again: Vec<u8>) -> (AgentClient, Arc<AtomicUsize>, AbortOnDropHandle<()>) {
    let (host, guest) = UnixStream::pair().expect("a pair of sockets");
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let server = GuestServer::from_arc(Arc::new(Agent::new(Arc::new(NoSystem))));
    let guest = AbortOnDropHandle::new(tokio::spawn(async move {
        let mut acceptor = Acceptor::new(guest);
        let link = acceptor.accept().await.expect("the host is there");
        let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (mut server, first, again) = (server.clone(), first.clone(), again.clone());
            let sent = Arc::clone(&counted);
            async move {
                if request.uri().path().ends_with("/Hello") {
                    return server.call(request).await;
                }
                let body = tonic::body::Body::new(Endless { first: Some(first), again, sent });
                let answer = Response::builder().header("content-type", "application/grpc").body(body);
                Ok(answer.expect("a response"))
            }
        });
        // It ends when the host has disconnected.
        let _ended =
            http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(link), service).await;
    }));
    let client = AgentClient::over(host, Instant::now() + SOON).await.expect("it greets");
    (client, sent, guest)
}

fn is_violation<T>(answer: Result<T, AgentError>) -> bool {
    matches!(answer, Err(AgentError::Violation { .. }))
}

#[tokio::test]
async fn endless_empty_pieces_are_refused() {
    let file_info = field(1, &[1 << 3, 1]);
    let (client, _, _guest) = endless(file_info, Vec::new()).await;
    let file = client.read_file("/x", 0, None).await.expect("it begins");
    assert!(is_violation(timeout(SOON, file.collect(1000)).await.expect("it ends")));
    let (client, _, _guest) = endless(field(1, b"archive"), Vec::new()).await;
    let mut tree = client.read_tree("/x").await.expect("it begins");
    assert_eq!(tree.next().await.expect("a piece").as_deref(), Some(&b"archive"[..]));
    assert!(is_violation(timeout(SOON, tree.next()).await.expect("it ends")));
}

#[tokio::test]
async fn endless_listing_is_cut() {
    let path = vec!["y".repeat(200); 15].join("/");
    let entry = [field(1, path.as_bytes()), field(2, &[1 << 3, 1])].concat();
    let batch = field(1, &entry).repeat(limits::DIR_BATCH_ENTRIES);
    let (client, sent, guest) = endless(batch.clone(), batch).await;
    let options = ListOptions { depth: 20, glob: None };
    let listing = timeout(SOON, client.list_dir("/x", &options)).await.expect("it ends").expect("a listing");
    assert!(listing.truncated && !listing.entries.is_empty());
    let bytes = listing.entries.len() * path.len();
    assert!(bytes <= 15 << 20, "{bytes}");
    drop(client);
    timeout(SOON, guest).await.expect("the connection ends").expect("no panic");
    assert!(sent.load(Ordering::Relaxed) < 100, "{sent:?}");
}

/// Decoded, such a message takes ninety bytes for every two.
#[tokio::test]
async fn empty_entries_are_refused_before_decoding() {
    let batch = field(1, &[]).repeat(100_000);
    let (client, _, _guest) = endless(batch.clone(), batch).await;
    let options = ListOptions { depth: 20, glob: None };
    let listing = timeout(SOON, client.list_dir("/x", &options)).await.expect("it ends");
    let error = listing.expect_err("too many entries").to_string();
    assert!(error.contains("malformed message, or more than"), "{error}");
}
