//! HTTP requests for both HTTP servers: MCP with a backend that answers every call, and the plain one for programs
//! inside workspaces. Every connection must end, and every answer must begin as HTTP.
//!
//! The first byte of the input selects the server, and the size of the pieces in which the rest is sent.

#![no_main]

use std::time::Duration;

use agentiso_http::{Backend, Front, Hosts, PlainAnswer, Settings, serve_plain};
use futures::future::BoxFuture;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// More than all deadlines of a connection together. The paused clock skips every wait.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

const MAX_BODY: usize = 64 << 10;

#[derive(Debug)]
struct Everybody;

impl Backend for Everybody {
    fn knows(&self, token: &str) -> bool {
        token == "t"
    }

    fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>> {
        Box::pin(async {
            let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
            tokio::spawn(answer_all(theirs));
            Ok(ours)
        })
    }
}

/// An MCP server that answers every call with success.
async fn answer_all(stream: UnixStream) {
    let (reading, mut writing) = stream.into_split();
    let mut lines = BufReader::new(reading).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).expect("the front passes JSON on");
        if let Some(id) = message.get("id").filter(|_| message.get("method").is_some()) {
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": {}});
            if writing.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

async fn client(mut stream: DuplexStream, bytes: &[u8], size: usize) -> Vec<u8> {
    for piece in bytes.chunks(size) {
        if stream.write_all(piece).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else { return };
    let size = 1 + usize::from(first >> 1) * 8;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let hosts = Hosts::new("127.0.0.1:1".parse().expect("an address"), Vec::new());
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let asking = client(theirs, bytes, size);
        let both = async {
            if first & 1 == 0 {
                let front = Front::new(Everybody, Settings::CLIENTS);
                tokio::join!(front.serve(ours, &hosts), asking).1
            } else {
                let answer = |_| async { PlainAnswer::ok(json!({})) };
                tokio::join!(serve_plain(ours, &hosts, MAX_BODY, answer), asking).1
            }
        };
        let answer = timeout(LIMIT, both).await.expect("the connection ends");
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&answer));
    });
});
