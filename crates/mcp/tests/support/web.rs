//! The server over HTTP, and a client that sends arbitrary requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agentiso_daemon::{Daemon, McpHandler, McpOptions, SessionKind};
use agentiso_http::{Backend, Front, Settings, Token, TokenHash, listen};
use agentiso_mcp::Mcp;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, World, stateless_meta};

#[derive(Debug)]
struct InMemory {
    daemon: Daemon,
    token: TokenHash,
}

impl Backend for InMemory {
    fn knows(&self, token: &str) -> bool {
        self.token.is_of(token)
    }

    fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>> {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let session = self.daemon.open_session(SessionKind::Client);
        tokio::spawn(Mcp::new("full").serve(session, McpOptions::default(), theirs));
        Box::pin(async { Ok(ours) })
    }
}

/// A server on a port of its own.
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) stop: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
}

impl Web {
    pub(crate) async fn of(world: &World) -> Self {
        Self::with(world, Settings { session_idle: Duration::from_secs(600), ..Settings::CLIENTS }).await
    }

    pub(crate) async fn with(world: &World, settings: Settings) -> Self {
        let token = Token::random("").expect("a token");
        let backend = InMemory { daemon: world.daemon(), token: token.hash() };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let front = Arc::new(Front::new(backend, settings));
        let serving = tokio::spawn(listen(front, listener, vec!["named.test".to_owned()], stop.clone()));
        Self { address, token: token.expose().to_owned(), stop, serving }
    }

    pub(crate) async fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).await.expect("a connection");
        Connection { stream, buffer: Vec::new() }
    }

    /// The headers of an ordinary request, changed by `more`.
    pub(crate) fn headers(&self, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let usual = [
            ("Host", self.address.to_string()),
            ("Authorization", format!("Bearer {}", self.token)),
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
        ];
        let mut headers: Vec<_> = usual.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        for (name, value) in more {
            headers.retain(|(known, _)| known != name);
            if !value.is_empty() {
                headers.push(((*name).to_owned(), (*value).to_owned()));
            }
        }
        headers
    }

    /// One request on a connection of its own. An empty value removes a usual header.
    pub(crate) async fn ask(&self, method: &str, path: &str, more: &[(&str, &str)], body: &str) -> Response {
        let mut connection = self.connect().await;
        connection.send(method, path, &self.headers(more), body).await;
        connection.response().await
    }

    pub(crate) async fn post(&self, more: &[(&str, &str)], message: &Value) -> Response {
        self.ask("POST", "/mcp", more, &message.to_string()).await
    }

    /// The id of a new session, and the answer to its handshake.
    pub(crate) async fn initialize(&self, version: &str) -> (String, Value) {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = self.post(&[], &message).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let session = answer.header("mcp-session-id").expect("a session").to_owned();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&[("Mcp-Session-Id", &session)], &ready).await.status, 202);
        (session, answer.json())
    }

    /// A stateless request, with the headers it must have.
    pub(crate) async fn stateless(&self, id: Value, method: &str, mut params: Value) -> Response {
        params["_meta"] = stateless_meta();
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", name.as_str())];
        self.post(&headers, &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await
    }
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: String,
    pub(crate) body: String,
}

impl Response {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.headers.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The messages of a stream of events.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"), "{self:?}");
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
    }
}

impl Connection {
    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &[(String, String)], body: &str) {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        self.raw(format!("{text}\r\n{body}").as_bytes()).await;
    }

    /// The server may close the connection while bytes are being sent; its answer says so.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn response(&mut self) -> Response {
        tokio::time::timeout(PATIENCE, self.read_response()).await.expect("an answer in time")
    }

    /// Everything received, once `words` occurs in it.
    pub(crate) async fn until(&mut self, words: &str) -> String {
        let reading = async {
            loop {
                let text = String::from_utf8_lossy(&self.buffer).into_owned();
                if text.contains(words) {
                    return text;
                }
                self.more().await;
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the words in time")
    }

    async fn read_response(&mut self) -> Response {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            self.more().await;
        };
        let head = String::from_utf8(self.buffer.drain(..end + 4).collect()).expect("text");
        let (line, headers) = head.split_once("\r\n").expect("a status line");
        let status = line.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a status");
        let mut response = Response { status, headers: headers.to_owned(), body: String::new() };
        let body = if response.header("transfer-encoding").is_some() {
            self.chunks().await
        } else {
            let length =
                response.header("content-length").map_or(0, |length| length.parse().expect("a number"));
            self.take(length).await
        };
        response.body = String::from_utf8(body).expect("text");
        response
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.extend(self.take(1).await);
            }
            let digits = std::str::from_utf8(&line).expect("text").trim();
            let length = usize::from_str_radix(digits, 16).expect("a length");
            body.extend(self.take(length).await);
            self.take(2).await;
            if length == 0 {
                return body;
            }
        }
    }

    async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            self.more().await;
        }
        self.buffer.drain(..length).collect()
    }

    async fn more(&mut self) {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes).await.expect("a readable stream");
        assert!(count > 0, "the server hung up");
        self.buffer.extend_from_slice(&bytes[..count]);
    }
}
