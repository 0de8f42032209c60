//! `agentiso serve --metrics-port`: the daemon's numbers for whoever watches this host, over plain HTTP on loopback.
//!
//! Nothing here counts. Every request is a question to the daemon, so that all `serve` of one daemon show the same.

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

use crate::client::{self, Client};
use crate::context::Context;
use crate::failure::Failure;

/// Watchers are few; more than this at once is a mistake of somebody.
const MAX_CONNECTIONS: usize = 32;

/// How long a client may take to send the head of a request, and how long it may stay silent between two.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// Request line and headers. Those who scrape send well below 1 KiB.
const MAX_HEAD: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;

/// The daemon looks things up in memory.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Out of descriptors, or a client that left at once: others may still be served, but not faster than that can pass.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// A port that is ours, before anybody is told that we serve.
#[derive(Debug)]
pub(super) struct Metrics {
    listener: TcpListener,
    context: Context,
}

impl Metrics {
    pub(super) async fn bind(context: &Context, port: u16) -> Result<Self, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::new(format!("metrics cannot be served at {address}: {error}"))
                .hint("give --metrics-port another port; one serve per daemon is enough, all show the same")
        })?;
        // Standard output belongs to MCP.
        eprintln!("metrics at http://{}/metrics", listener.local_addr()?);
        Ok(Self { listener, context: context.clone() })
    }

    /// Serves until it is dropped or its runtime ends.
    pub(super) async fn serve(self) {
        let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            // No seat, no accept: who comes then waits in the kernel's queue.
            let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(AFTER_FAILURE).await;
                    continue;
                }
            };
            let context = self.context.clone();
            tokio::spawn(async move {
                let _seat = seat;
                converse(&context, stream).await;
            });
        }
    }
}

async fn converse(context: &Context, stream: impl AsyncRead + AsyncWrite + Unpin) {
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
        tracing::debug!(%error, "a connection for metrics broke");
    }
}

type Answer = Response<Full<Bytes>>;

async fn answer(context: &Context, request: &Request<Incoming>) -> Answer {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    match Wish::of(request.method(), request.uri().path(), host) {
        Ok(Wish::Metrics) => told(OPENMETRICS, metrics(context).await),
        Ok(Wish::Health) => told(JSON, health(context).await),
        Err((status, words)) => {
            let mut answer = plain(status, TEXT, format!("{words}\n"));
            if status == StatusCode::METHOD_NOT_ALLOWED {
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            answer
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Metrics,
    Health,
}

impl Wish {
    fn of(method: &Method, path: &str, host: Option<&str>) -> Result<Self, (StatusCode, &'static str)> {
        // A web page may send a browser here under a name of its own that resolves to loopback; it cannot choose what
        // the browser then writes as Host.
        if !host.is_some_and(is_loopback) {
            return Err((StatusCode::FORBIDDEN, "the Host header must name localhost or 127.0.0.1"));
        }
        if ![Method::GET, Method::HEAD].contains(method) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered"));
        }
        match path {
            "/metrics" => Ok(Self::Metrics),
            "/healthz" => Ok(Self::Health),
            _ => Err((StatusCode::NOT_FOUND, "there are /metrics and /healthz")),
        }
    }
}

/// Any port: somebody may have forwarded theirs to ours.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        Some(_) | None => host,
    };
    matches!(name, "127.0.0.1" | "[::1]") || name.eq_ignore_ascii_case("localhost")
}

async fn metrics(context: &Context) -> Result<String, Failure> {
    asked(async { running(context).await?.control().metrics().await.map_err(client::refused) }).await
}

async fn health(context: &Context) -> Result<String, Failure> {
    let health =
        asked(async { running(context).await?.control().health().await.map_err(client::refused) }).await?;
    Ok(serde_json::to_string(&health)?)
}

/// Whoever only looks does not start a daemon.
async fn running(context: &Context) -> Result<Client, Failure> {
    Client::open_running(context).await?.ok_or_else(|| Failure::new("no daemon is running"))
}

async fn asked<T>(question: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Failure::new(format!("the daemon did not answer within {} s", ANSWER_DEADLINE.as_secs()));
    tokio::time::timeout(ANSWER_DEADLINE, question).await.map_err(late)?
}

fn told(kind: &'static str, answer: Result<String, Failure>) -> Answer {
    match answer {
        Ok(text) => plain(StatusCode::OK, kind, text),
        Err(failure) => plain(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{failure}\n")),
    }
}

fn plain(status: StatusCode, kind: &'static str, text: String) -> Answer {
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
    fn only_loopback_names_are_answered() {
        let asked = |host| Wish::of(&Method::GET, "/metrics", host);
        for ours in ["localhost", "LocalHost:9184", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:80"] {
            assert_eq!(asked(Some(ours)), Ok(Wish::Metrics), "{ours}");
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
    fn there_is_nothing_but_two_things_to_read() {
        let asked = |method, path| Wish::of(&method, path, Some("localhost"));
        assert_eq!(asked(Method::HEAD, "/healthz"), Ok(Wish::Health));
        assert_eq!(asked(Method::POST, "/metrics").unwrap_err().0, StatusCode::METHOD_NOT_ALLOWED);
        for path in ["/", "/metrics/", "/../metrics", "/mcp"] {
            assert_eq!(asked(Method::GET, path).unwrap_err().0, StatusCode::NOT_FOUND, "{path}");
        }
    }
    #[tokio::test(start_paused = true)]
    async fn whoever_never_reads_loses_its_seat() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agentiso.toml");
        std::fs::write(&path, "").unwrap();
        let context = Context::load(&ConfigArgument { config: Some(path) }).unwrap();
        // Room for less than the answers.
        let (mut client, server) = tokio::io::duplex(64);
        let asking = async {
            let wish = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
            while client.write_all(wish).await.is_ok() {}
        };
        let both = async { tokio::join!(converse(&context, server), asking) };
        // Far longer than anybody's patience; nothing else would end it.
        tokio::time::timeout(Duration::from_secs(600), both).await.expect("an end");
    }
}
