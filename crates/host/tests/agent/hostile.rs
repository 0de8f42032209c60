//! Guests that lie, babble or say nothing. The client ends with an error, soon, and never hangs.

use std::time::Duration;

use agentiso_host::agent::{AgentClient, HandshakeError};
use agentiso_protocol::io::OpenError;
use agentiso_protocol::link::{Decoder, Event, MAX_PAYLOAD, Nonce, data_header, sync_ack};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::support::SOON;

const PATIENCE: Duration = Duration::from_millis(400);

/// Small, seeded random numbers: a failure can be repeated.
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

/// Connects to a guest that answers the opening, sends these bytes and then reads on without a word.
async fn meet(
    answer: impl FnOnce(&Nonce) -> Vec<u8> + Send + 'static,
) -> Result<AgentClient, HandshakeError> {
    let (host, mut guest) = UnixStream::pair().expect("a pair of sockets");
    let _guest = AbortOnDropHandle::new(tokio::spawn(async move {
        let nonce = read_sync(&mut guest).await;
        // The host may hang up at any byte.
        if guest.write_all(&answer(&nonce)).await.is_ok() {
            let mut sink = vec![0; 4096];
            while guest.read(&mut sink).await.is_ok_and(|count| count > 0) {}
        }
    }));
    let connect = AgentClient::over(host, Instant::now() + PATIENCE);
    timeout(SOON + SOON, connect).await.expect("the client gives up by itself")
}

#[tokio::test]
async fn a_guest_that_says_nothing_is_given_up() {
    let result = meet(|_| Vec::new()).await;
    assert!(matches!(result, Err(HandshakeError::Link(OpenError::Deadline))), "{result:?}");
}

#[tokio::test]
async fn a_guest_that_babbles_without_end_is_given_up() {
    let (host, mut guest) = UnixStream::pair().expect("a pair of sockets");
    let _guest = AbortOnDropHandle::new(tokio::spawn(async move {
        let noise = Noise(1).bytes(65_536);
        while guest.write_all(&noise).await.is_ok() {}
    }));
    let result = AgentClient::over(host, Instant::now() + PATIENCE).await;
    assert!(matches!(result, Err(HandshakeError::Link(OpenError::Deadline))), "{result:?}");
}

#[tokio::test]
async fn an_answer_to_another_opening_is_no_answer() {
    let result = meet(|nonce| sync_ack(&nonce.map(|byte| !byte)).to_vec()).await;
    assert!(matches!(result, Err(HandshakeError::Link(OpenError::Deadline))), "{result:?}");
}

#[tokio::test]
async fn noise_instead_of_frames_is_an_error() {
    for seed in 1..60 {
        let result = meet(move |nonce| {
            let mut noise = Noise(seed);
            let mut bytes = sync_ack(nonce).to_vec();
            // Begins with a kind that does not exist, or the noise might wait for more for ever.
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
        let result = meet(move |nonce| {
            let mut bytes = sync_ack(nonce).to_vec();
            let mut noise = Noise(seed * 77);
            let mut payload = noise.bytes(20_000);
            // The length of the first HTTP/2 frame: short enough to be complete, and of a type that must not come first.
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
async fn an_oversized_frame_is_refused_by_its_header() {
    let result = meet(|nonce| {
        let mut bytes = sync_ack(nonce).to_vec();
        // SETTINGS, then a HEADERS frame that claims 16 MiB.
        bytes.extend(framed(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 1, 4, 0, 0, 0, 1]));
        bytes
    })
    .await;
    assert!(matches!(result, Err(HandshakeError::Hello(_))), "{result:?}");
}

#[tokio::test]
async fn endless_headers_are_refused() {
    let result = meet(|nonce| {
        let mut payload = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
        // A HEADERS frame without END_HEADERS, then CONTINUATION frames for ever.
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
