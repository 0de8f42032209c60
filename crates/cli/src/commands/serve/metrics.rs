//! `agentiso serve --metrics-port`: serves the daemon's metrics and health over plain HTTP on the loopback.
//!
//! Nothing is counted here. Every request is passed to the daemon, so all `serve` of one daemon show the same.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use agentiso_http::Patient;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;

/// The most connections at once. Monitoring needs few; more are probably a mistake.
const MAX_CONNECTIONS: usize = 32;

/// The time that a client gets to send the head of a request, and to be silent between two requests.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// The most bytes of request line and headers. Scrapers send well below 1 KiB.
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

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

async fn serve_connection(context: &Context, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let answer = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(answer(context, &request).await)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_header_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(Patient::new(stream)), answer);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a metrics connection failed");
    }
}

type Answer = Response<Full<Bytes>>;

async fn answer(context: &Context, request: &Request<Incoming>) -> Answer {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    match Endpoint::of_request(request.method(), request.uri().path(), host) {
        Ok(Endpoint::Metrics) => respond(OPENMETRICS, metrics(context).await),
        Ok(Endpoint::Health) => respond(JSON, health(context).await),
        Err((status, words)) => {
            let mut answer = response(status, TEXT, format!("{words}\n"));
            if status == StatusCode::METHOD_NOT_ALLOWED {
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            answer
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Metrics,
    Health,
}

impl Endpoint {
    fn of_request(
        method: &Method,
        path: &str,
        host: Option<&str>,
    ) -> Result<Self, (StatusCode, &'static str)> {
        // A web page may send a browser here under its own name that resolves to the loopback. It cannot change the
        // Host header that the browser sends.
        if !host.is_some_and(is_loopback) {
            return Err((StatusCode::FORBIDDEN, "the Host header must name localhost or 127.0.0.1"));
        }
        if ![Method::GET, Method::HEAD].contains(method) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported"));
        }
        match path {
            "/metrics" => Ok(Self::Metrics),
            "/healthz" => Ok(Self::Health),
            _ => Err((StatusCode::NOT_FOUND, "not found; only /metrics and /healthz exist")),
        }
    }
}

/// Whether a Host header names the loopback. Any port is accepted, because another port may be forwarded to this one.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    matches!(name, "127.0.0.1" | "[::1]") || name.eq_ignore_ascii_case("localhost")
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

fn respond(kind: &'static str, answer: Result<String, Failure>) -> Answer {
    match answer {
        Ok(text) => response(StatusCode::OK, kind, text),
        Err(failure) => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{failure}\n")),
    }
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::from(text));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ConfigArgument;
    use tokio::io::AsyncWriteExt;

    #[test]
    fn metrics_require_a_loopback_host_header() {
        let asked = |host| Endpoint::of_request(&Method::GET, "/metrics", host);
        for ours in ["localhost", "LocalHost:9184", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:80"] {
            assert_eq!(asked(Some(ours)), Ok(Endpoint::Metrics), "{ours}");
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
            assert_eq!(asked(Some(foreign)).unwrap_err().0, StatusCode::FORBIDDEN, "{foreign}");
        }
        assert_eq!(asked(None).unwrap_err().0, StatusCode::FORBIDDEN);
    }

    #[test]
    fn only_metrics_and_healthz_are_served() {
        let asked = |method, path| Endpoint::of_request(&method, path, Some("localhost"));
        assert_eq!(asked(Method::HEAD, "/healthz"), Ok(Endpoint::Health));
        assert_eq!(asked(Method::POST, "/metrics").unwrap_err().0, StatusCode::METHOD_NOT_ALLOWED);
        for path in ["/", "/metrics/", "/../metrics", "/mcp"] {
            assert_eq!(asked(Method::GET, path).unwrap_err().0, StatusCode::NOT_FOUND, "{path}");
        }
    }
    #[tokio::test(start_paused = true)]
    async fn metrics_client_that_never_reads_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentiso.toml");
        std::fs::write(&path, "").unwrap();
        let context = Context::load(&ConfigArgument { config: Some(path) }).unwrap();
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
