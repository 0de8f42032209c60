//! The writing side of a connection: whole answers, and streams of events.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::settings::WRITE_DEADLINE;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(u16, &'static str);

impl Status {
    pub(crate) const OK: Self = Self(200, "OK");
    pub(crate) const ACCEPTED: Self = Self(202, "Accepted");
    pub(crate) const NO_CONTENT: Self = Self(204, "No Content");
    pub(crate) const BAD_REQUEST: Self = Self(400, "Bad Request");
    pub(crate) const UNAUTHORIZED: Self = Self(401, "Unauthorized");
    pub(crate) const FORBIDDEN: Self = Self(403, "Forbidden");
    pub(crate) const NOT_FOUND: Self = Self(404, "Not Found");
    pub(crate) const METHOD_NOT_ALLOWED: Self = Self(405, "Method Not Allowed");
    pub(crate) const NOT_ACCEPTABLE: Self = Self(406, "Not Acceptable");
    pub(crate) const TIMED_OUT: Self = Self(408, "Request Timeout");
    pub(crate) const TOO_LARGE: Self = Self(413, "Content Too Large");
    pub(crate) const UNSUPPORTED_MEDIA: Self = Self(415, "Unsupported Media Type");
    pub(crate) const BAD_GATEWAY: Self = Self(502, "Bad Gateway");
    pub(crate) const UNAVAILABLE: Self = Self(503, "Service Unavailable");
}

/// An answer that is known to its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    status: Status,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn empty(status: Status) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn json(status: Status, message: &Value) -> Self {
        let headers = vec![("Content-Type", "application/json".to_owned())];
        Self { status, headers, body: message.to_string().into_bytes() }
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}

#[derive(Debug)]
pub(crate) struct Outgoing<W>(W);

impl<W: AsyncWrite + Unpin> Outgoing<W> {
    pub(crate) fn new(write: W) -> Self {
        Self(write)
    }

    /// The client may send its body.
    pub(crate) async fn go_on(&mut self) -> io::Result<()> {
        self.put(b"HTTP/1.1 100 Continue\r\n\r\n").await
    }

    pub(crate) async fn answer(&mut self, answer: &Answer, keep_alive: bool) -> io::Result<()> {
        let mut head = head(answer.status, keep_alive);
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if answer.status != Status::NO_CONTENT {
            head.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&answer.body);
        self.put(&bytes).await
    }

    /// Begins a stream of events. Without chunks its end is that of the connection.
    pub(crate) async fn begin_events(
        &mut self,
        chunked: bool,
        keep_alive: bool,
    ) -> io::Result<Events<'_, W>> {
        let mut head = head(Status::OK, keep_alive && chunked);
        head.push_str("Content-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n");
        head.push_str(if chunked { "Transfer-Encoding: chunked\r\n\r\n" } else { "\r\n" });
        self.put(head.as_bytes()).await?;
        Ok(Events { outgoing: self, chunked })
    }

    /// Nothing more will be sent.
    pub(crate) async fn end(&mut self) {
        // A client that is gone already has missed nothing.
        let _ = timeout(WRITE_DEADLINE, self.0.shutdown()).await;
    }

    async fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let writing = async {
            self.0.write_all(bytes).await?;
            self.0.flush().await
        };
        timeout(WRITE_DEADLINE, writing).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

/// What every answer begins with. Nothing of it is for caches, or for browsers to guess at.
fn head(status: Status, keep_alive: bool) -> String {
    let Status(number, words) = status;
    let connection = if keep_alive { "keep-alive" } else { "close" };
    format!(
        "HTTP/1.1 {number} {words}\r\nConnection: {connection}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n"
    )
}

/// A stream of events that has begun.
#[derive(Debug)]
pub(crate) struct Events<'a, W> {
    outgoing: &'a mut Outgoing<W>,
    chunked: bool,
}

impl<W: AsyncWrite + Unpin> Events<'_, W> {
    pub(crate) async fn message(&mut self, message: &Value) -> io::Result<()> {
        // JSON as it is written here has no line feeds.
        self.part(format!("event: message\ndata: {message}\n\n").as_bytes()).await
    }

    /// Something that clients skip.
    pub(crate) async fn sign_of_life(&mut self) -> io::Result<()> {
        self.part(b":\n\n").await
    }

    pub(crate) async fn end(self) -> io::Result<()> {
        if self.chunked { self.outgoing.put(b"0\r\n\r\n").await } else { Ok(()) }
    }

    async fn part(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.chunked {
            return self.outgoing.put(bytes).await;
        }
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.outgoing.put(&chunk).await
    }
}
