//! `agentiso serve --metrics-port`: serves the daemon's metrics and health over plain HTTP on the loopback.
//!
//! Nothing is counted here. Every request is passed to the daemon, so all `serve` of one daemon show the same.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use agentiso_http::{Hosts, Plain, PlainAnswer, serve_plain};
use http::header::{ALLOW, HeaderValue};
use http::{Method, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;

/// The most connections at once. Monitoring needs few; more are probably a mistake.
const MAX_CONNECTIONS: usize = 32;

/// The most bytes of a body, which a question about metrics does not have.
const MAX_BODY: usize = 4096;

/// The time that the daemon gets to answer. It only reads from memory.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// The pause after a failed accept, for example because no descriptor is free. Further clients are served after it.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// The open port for metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    listener: TcpListener,
    context: Context,
}

impl Metrics {
    pub(super) async fn bind(context: &Context, port: u16) -> Result<Self, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::new(format!("cannot serve metrics on {address}: {error}"))
                .hint("choose another port with --metrics-port; one `agentiso serve` per daemon is enough, they all show the same metrics")
        })?;
        // Standard output is used by MCP.
        eprintln!("metrics at http://{}/metrics", listener.local_addr()?);
        Ok(Self { listener, context: context.clone() })
    }

    /// Serves until it is dropped or its runtime ends.
    pub(super) async fn serve(self) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            // At the limit no connection is accepted; further clients wait in the kernel's queue.
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(AFTER_FAILURE).await;
                    continue;
                }
            };
            let context = self.context.clone();
            tokio::spawn(async move {
                let _slot = slot;
                serve_connection(&context, stream).await;
            });
        }
    }
}

async fn serve_connection(context: &Context, stream: impl AsyncRead + AsyncWrite + Send + Unpin) {
    // A web page may send a browser here under its own name that resolves to the loopback. It cannot change the Host
    // header that the browser sends. Any port is accepted, because another port may be forwarded to this one.
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let hosts = Hosts::new((Ipv4Addr::LOCALHOST, 0).into(), names);
    if let Err(error) = serve_plain(stream, &hosts, MAX_BODY, |asked| answer(context, asked)).await {
        tracing::debug!(%error, "a metrics connection failed");
    }
}

async fn answer(context: &Context, asked: Plain) -> PlainAnswer {
    if ![Method::GET, Method::HEAD].contains(&asked.method) {
        let words = "only GET and HEAD are supported\n".to_owned();
        return PlainAnswer::text(StatusCode::METHOD_NOT_ALLOWED, TEXT, words)
            .with_header(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    match asked.path.as_str() {
        "/metrics" => respond(OPENMETRICS, metrics(context).await),
        "/healthz" => respond(JSON, health(context).await),
        _ => {
            let words = "not found; only /metrics and /healthz exist\n".to_owned();
            PlainAnswer::text(StatusCode::NOT_FOUND, TEXT, words)
        }
    }
}

async fn metrics(context: &Context) -> Result<String, Failure> {
    with_deadline(async { running(context).await?.metrics().await }).await
}

async fn health(context: &Context) -> Result<String, Failure> {
    let health = with_deadline(async { running(context).await?.health().await }).await?;
    Ok(serde_json::to_string(&health)?)
}

/// Connects to a running daemon. Reading metrics does not start one.
async fn running(context: &Context) -> Result<Client, Failure> {
    Client::open_running(context).await?.ok_or_else(|| Failure::new("no daemon is running"))
}

async fn with_deadline<T>(question: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Failure::new(format!("the daemon did not answer within {} s", ANSWER_DEADLINE.as_secs()));
    tokio::time::timeout(ANSWER_DEADLINE, question).await.map_err(late)?
}

fn respond(kind: &'static str, answer: Result<String, Failure>) -> PlainAnswer {
    match answer {
        Ok(text) => PlainAnswer::text(StatusCode::OK, kind, text),
        Err(failure) => PlainAnswer::text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{failure}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ConfigArgument;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn context(dir: &std::path::Path) -> Context {
        let path = dir.join("agentiso.toml");
        std::fs::write(&path, "").unwrap();
        Context::load(&ConfigArgument { config: Some(path) }).unwrap()
    }

    /// The status of the answer to a request.
    async fn ask(line: &str, host: &str) -> u16 {
        let dir = tempfile::tempdir().unwrap();
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let request = format!("{line} HTTP/1.1\r\n{host}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        serve_connection(&context(dir.path()), server).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(&answer)
    }

    #[tokio::test]
    async fn metrics_require_a_loopback_host_header() {
        for ours in ["localhost", "LocalHost:9184", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:80"] {
            assert_eq!(ask("GET /", &format!("Host: {ours}\r\n")).await, 404, "{ours}");
        }
        for foreign in [
            "",
            "evil.example:9184",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "evil.example:localhost",
            "localhost:",
            "[::1",
            "10.0.0.1",
            "127.0.0.1:80:80",
        ] {
            assert_eq!(ask("GET /metrics", &format!("Host: {foreign}\r\n")).await, 403, "{foreign}");
        }
        assert_eq!(ask("GET /metrics", "").await, 403);
    }

    #[tokio::test]
    async fn only_metrics_and_healthz_are_served() {
        let host = "Host: localhost\r\n";
        assert_eq!(ask("POST /metrics", host).await, 405);
        for path in ["/", "/metrics/", "/../metrics", "/mcp"] {
            assert_eq!(ask(&format!("GET {path}"), host).await, 404, "{path}");
        }
        // No daemon runs.
        for line in ["GET /metrics", "HEAD /healthz"] {
            assert_eq!(ask(line, host).await, 503, "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_client_that_never_reads_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(dir.path());
        // The buffer is smaller than the answers.
        let (mut client, server) = tokio::io::duplex(64);
        let asking = async {
            let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
            while client.write_all(request).await.is_ok() {}
        };
        let both = async { tokio::join!(serve_connection(&context, server), asking) };
        // Far longer than any deadline of the server; nothing else would end the connection.
        tokio::time::timeout(Duration::from_secs(600), both).await.expect("an end");
    }
}
