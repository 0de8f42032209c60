//! Exchanges with a server that answers `initialize` and `tools/list`, acknowledges subscriptions, and leaves all else
//! unanswered.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::settings::{GRACE, Settings};

const SOON: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Played;

impl Backend for Played {
    fn knows(&self, token: &str) -> bool {
        token == "t"
    }

    fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(play(BufReader::new(theirs)));
        Box::pin(std::future::ready(Ok(ours)))
    }
}

async fn play(mut server: BufReader<UnixStream>) {
    let mut line = String::new();
    while let Ok(1..) = server.read_line(&mut line).await {
        let message: Value = serde_json::from_str(&line).unwrap();
        line.clear();
        let answer = match message["method"].as_str() {
            Some("initialize" | "tools/list") => {
                json!({"id": message["id"], "result": {"protocolVersion": "2025-06-18"}})
            }
            Some("subscriptions/listen") => {
                let meta = json!({"io.modelcontextprotocol/subscriptionId": message["id"]});
                json!({"method": "heard", "params": {"_meta": meta}})
            }
            Some(_) | None => continue,
        };
        server.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
}

struct Client {
    stream: DuplexStream,
    got: String,
    serving: JoinHandle<()>,
}

impl Client {
    fn connect(front: &Arc<Front<Played>>) -> Self {
        let (ours, stream) = tokio::io::duplex(1 << 20);
        let front = front.clone();
        let serving = tokio::spawn(async move {
            let hosts = Hosts::new("127.0.0.1:1".parse().unwrap(), Vec::new());
            front.serve(ours, &hosts).await;
        });
        Self { stream, got: String::new(), serving }
    }

    /// A client that has posted this message on its own connection.
    async fn posting(front: &Arc<Front<Played>>, headers: &str, message: Value) -> Self {
        let mut client = Self::connect(front);
        let body = message.to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:1\r\nAuthorization: Bearer t\r\n\
             Content-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        client.stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        client
    }

    /// Everything received, once `words` occurs in it.
    async fn until(&mut self, words: &str) -> &str {
        let reading = async {
            let mut bytes = [0; 4096];
            while !self.got.contains(words) {
                let count = self.stream.read(&mut bytes).await.unwrap();
                assert!(count > 0, "it ended before {words:?}: {}", self.got);
                self.got.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
            }
        };
        timeout(SOON, reading).await.expect("the words in time");
        &self.got
    }
}

fn front(max_requests: usize) -> Arc<Front<Played>> {
    Arc::new(Front::new(Played, Settings { max_requests, ..Settings::CLIENTS }))
}

/// The header of a new session.
async fn session(front: &Arc<Front<Played>>) -> String {
    let mut client = Client::posting(front, "", json!({"id": 0, "method": "initialize"})).await;
    let answer = client.until("protocolVersion").await;
    let line = answer.lines().find(|line| line.to_lowercase().starts_with("mcp-session-id: "));
    format!("{}\r\n", line.expect("a session"))
}

async fn subscribe(front: &Arc<Front<Played>>) -> Client {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let message = json!({"id": "s", "method": "subscriptions/listen", "params": {"_meta": meta}});
    let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n\
                   Accept: text/event-stream\r\n";
    let mut client = Client::posting(front, headers, message).await;
    client.until("\"heard\"").await;
    client
}

#[tokio::test]
async fn listeners_do_not_use_up_request_permits() {
    let front = front(1);
    let session = session(&front).await;
    let _listening = [subscribe(&front).await, subscribe(&front).await, subscribe(&front).await];
    let mut asking = Client::posting(&front, &session, json!({"id": 1, "method": "tools/list"})).await;
    assert!(asking.until("\r\n\r\n").await.starts_with("HTTP/1.1 200 "), "{}", asking.got);
}

#[tokio::test]
async fn listener_does_not_delay_closing() {
    let front = front(4);
    let listening = subscribe(&front).await;
    front.close();
    timeout(GRACE / 2, listening.serving).await.expect("an end at once").unwrap();
}

#[tokio::test]
async fn call_can_be_cancelled_without_free_permits() {
    let front = front(1);
    let session = session(&front).await;
    let ask = |id: u64| Client::posting(&front, &session, json!({"id": id, "method": "wait"}));
    let mut waiting = ask(1).await;
    let taken = async {
        while front.permits.take().is_some() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, taken).await.expect("its turn");
    let status = async |mut client: Client| client.until("\r\n").await[9..12].to_owned();
    assert_eq!(status(ask(2).await).await, "503");
    let cancel = |reason: &str| {
        let params = json!({"requestId": 1, "reason": reason});
        Client::posting(&front, &session, json!({"method": "notifications/cancelled", "params": params}))
    };
    assert_eq!(status(cancel(&"x".repeat(SPARE_BODY)).await).await, "503");
    assert_eq!(status(cancel("enough").await).await, "202");
    waiting.until("the request was cancelled").await;
}
