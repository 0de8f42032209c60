//! Serves HTTP requests that are not MCP: one per connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::{Mutex, PoisonError};

use http::header::{HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::answer::{self, Answer};
use crate::body::{self, BodyError};
use crate::connection;
use crate::guard::{self, Hosts};
use crate::head::Head;
use crate::linger::linger;
use crate::patient::Patient;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    pub method: Method,
    /// Without the query.
    pub path: String,
    pub body: Vec<u8>,
}

/// Its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainAnswer {
    status: StatusCode,
    header: Option<(HeaderName, HeaderValue)>,
    kind: &'static str,
    body: String,
}

impl PlainAnswer {
    pub fn ok(body: Value) -> Self {
        Self::text(StatusCode::OK, answer::JSON, body.to_string())
    }

    pub fn refusal(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let message: String = message.into();
        let body = json!({ "error": { "code": code, "message": message } });
        Self::text(status, answer::JSON, body.to_string())
    }

    /// An answer of another kind than JSON.
    pub fn text(status: StatusCode, kind: &'static str, body: String) -> Self {
        Self { status, header: None, kind, body }
    }

    pub fn with_header(self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        Self { header: Some((name, value.into())), ..self }
    }

    fn into_answer(self) -> Answer {
        let answer = answer::text(self.status, self.kind, self.body);
        match self.header {
            Some((name, value)) => answer::with_header(answer, name, value),
            None => answer,
        }
    }
}

/// Accepts one request, answers it with `answer`, and ends the connection. A request that cannot be read is refused
/// without calling `answer`. Returns an error if the connection broke before the answer was sent.
pub async fn serve_plain<S, F>(
    stream: S,
    hosts: &Hosts,
    max_body: usize,
    answer: impl FnOnce(Plain) -> F + Send,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
    F: Future<Output = PlainAnswer> + Send,
{
    let answer = Mutex::new(Some(answer));
    let service = service_fn(|request| {
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            let answered = match (read(request, hosts, max_body).await, answer) {
                (Ok(plain), Some(answer)) => answer(plain).await,
                (Err(refusal), _) => refusal,
                // Connections are not kept for a second request.
                (Ok(_), None) => {
                    let words = "only one request per connection is answered";
                    PlainAnswer::refusal(StatusCode::SERVICE_UNAVAILABLE, "one_at_a_time", words)
                }
            };
            Ok::<_, Infallible>(answered.into_answer())
        })
    });
    let mut connection = connection::builder()
        .keep_alive(false)
        // A client that has shut its sending side down still waits for the answer.
        .half_close(true)
        .serve_connection(TokioIo::new(Patient::new(stream)), service);
    let ended = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    let is_heard = ended.as_ref().err().is_none_or(hyper::Error::is_parse);
    if is_heard {
        // A refused request may not have been read to its end.
        linger(connection.into_parts().io.into_inner()).await;
    }
    ended.map_err(io::Error::other)
}

async fn read(request: Request<Incoming>, hosts: &Hosts, max_body: usize) -> Result<Plain, PlainAnswer> {
    let (parts, body) = request.into_parts();
    let head = Head::of(parts)
        .map_err(|error| PlainAnswer::refusal(StatusCode::BAD_REQUEST, "bad_request", error.to_string()))?;
    guard::check_site(&head, hosts)
        .map_err(|problem| PlainAnswer::refusal(StatusCode::FORBIDDEN, "forbidden", problem))?;
    let body = body::read(body, max_body).await.map_err(|error| {
        let (status, code) = match &error {
            BodyError::TimedOut => (StatusCode::REQUEST_TIMEOUT, "timed_out"),
            BodyError::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            BodyError::Broken(_) => (StatusCode::BAD_REQUEST, "bad_request"),
        };
        PlainAnswer::refusal(status, code, error.to_string())
    })?;
    Ok(Plain { method: head.method, path: head.path, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn ask(text: &str) -> String {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(text.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let hosts = Hosts::new("127.0.0.1:8080".parse().unwrap(), Vec::new());
        let echo = |plain: Plain| async move {
            let Plain { method, path, body } = plain;
            PlainAnswer::ok(json!([method.as_str(), path, String::from_utf8(body).unwrap()]))
        };
        // hyper returns an error for a request that it could not read.
        let _ = serve_plain(server, &hosts, 10, echo).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn plain_connection_serves_one_request() {
        let answer = ask("POST /a?b HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length: 2\r\n\r\nhi").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.to_lowercase().contains("connection: close\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n[\"POST\",\"/a\",\"hi\"]"), "{answer}");
        assert_eq!(ask("").await, "");
    }

    #[tokio::test]
    async fn refused_sender_is_not_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let hosts = Hosts::new("127.0.0.1:8080".parse().unwrap(), Vec::new());
        let head = "POST / HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length: 99999999\r\n\r\n";
        let talking = async move {
            client.write_all(head.as_bytes()).await.unwrap();
            client.write_all(&[b'x'; 1 << 16]).await.unwrap();
            let mut got = String::new();
            client.read_to_string(&mut got).await.unwrap();
            client.write_all(&[b'x'; 4096]).await.expect("no reset");
            got
        };
        let never = |_: Plain| async { PlainAnswer::ok(json!("it was asked")) };
        let (served, got) = tokio::join!(serve_plain(server, &hosts, 10, never), talking);
        served.unwrap();
        assert!(got.starts_with("HTTP/1.1 413 "), "{got}");
    }

    #[tokio::test]
    async fn bad_plain_requests_are_refused() {
        let host = "Host: 127.0.0.1:8080\r\n";
        let cases = [
            ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "403 "),
            (format!("GET / HTTP/1.1\r\n{host}Origin: http://evil.example\r\n\r\n"), "403 "),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), "403 "),
            (format!("POST / HTTP/1.1\r\n{host}Content-Length: 11\r\n\r\n"), "413 "),
            (format!("GET / HTTP/1.1\r\n{host}{host}\r\n"), "400 "),
        ];
        for (text, status) in cases {
            let answer = ask(&text).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{text:?}: {answer}");
            assert!(answer.contains("{\"error\":{\"code\":"), "{answer}");
        }
        assert!(ask("GET / HTTP/9\r\n\r\n").await.starts_with("HTTP/1.1 4"));
    }
}
