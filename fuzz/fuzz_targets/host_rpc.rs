//! Arbitrary bytes from a guest for the host's RPC client: it must end in time with an error.

#![no_main]

use std::time::Duration;

use agentiso_agent::AgentClient;
use agentiso_protocol::link::{Decoder, Event, MAX_PAYLOAD, data_header, sync_ack};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};

const LIMIT: Duration = Duration::from_secs(10);

async fn guest(mut stream: UnixStream, data: Vec<u8>) {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 4096];
    let nonce = loop {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        let mut input = &buffer[..count];
        if let Some(Event::Sync(nonce)) = decoder.decode(&mut input, usize::MAX) {
            break nonce;
        }
    };
    let mut bytes = sync_ack(&nonce).to_vec();
    match data.split_first() {
        Some((first, rest)) if first & 1 == 1 => {
            for chunk in rest.chunks(MAX_PAYLOAD) {
                bytes.extend_from_slice(&data_header(chunk.len()));
                bytes.extend_from_slice(chunk);
            }
        }
        Some((_, rest)) => bytes.extend_from_slice(rest),
        None => {}
    }
    // Half closed afterwards, which ends every wait of the client. A full close could lose the bytes.
    if stream.write_all(&bytes).await.is_ok() && stream.shutdown().await.is_ok() {
        while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    }
}

fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (host, far) = UnixStream::pair().expect("a pair of sockets");
        let connect = AgentClient::over(host, Instant::now() + LIMIT / 2);
        let both = async { tokio::join!(connect, guest(far, data.to_vec())) };
        assert!(timeout(LIMIT, both).await.is_ok(), "the client hangs");
    });
});
