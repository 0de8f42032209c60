//! Serves one connection from its first byte to its last. hyper speaks HTTP/1.1; this file limits connections and the
//! time that a client may take, and ends each connection so that the client learns the reason.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use http_body_util::BodyExt;
use hyper::server::conn::http1::{Builder, Parts};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::answer::Answer;
use crate::backend::Backend;
use crate::front::Front;
use crate::guard::Hosts;
use crate::linger::linger;
use crate::patient::Patient;
use crate::refusal::{Refusal, code};
use crate::settings::{HEAD_DEADLINE, LINGER, MAX_HEAD, MAX_HEADERS};

impl<B: Backend> Front<B> {
    /// Serves one connection to its end. Dropping the future cancels what is in progress on the connection.
    pub async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin>(&self, stream: S, hosts: &Hosts) {
        let stream = Patient::new(stream);
        let Ok(_permit) = self.connections.try_acquire() else {
            let limit = self.settings.max_connections;
            let refusal = Refusal::busy(format!("too many connections: the limit is {limit}"));
            // Only a few connections beyond the limit get a refusal, because nothing else bounds their number.
            if let Ok(_permit) = self.dismissals.try_acquire() {
                dismiss(stream, refusal.into_answer()).await;
            }
            return;
        };
        let has_asked = AtomicBool::new(false);
        let service = service_fn(|request| {
            has_asked.store(true, Ordering::Relaxed);
            Box::pin(async move { Ok::<_, Infallible>(self.answer(request, hosts).await) })
        });
        // A client that hangs up ends the connection, and with it the call that it waits for. hyper detects this only
        // while no bytes of a next request have arrived; otherwise it is detected when the answer, or a keep-alive, is
        // written.
        let mut connection = builder().serve_connection(TokioIo::new(stream), service);
        let mut closing = pin!(self.closing.cancelled());
        let mut is_closing = false;
        let ended = loop {
            tokio::select! {
                biased;
                ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break ended,
                () = &mut closing, if !is_closing => is_closing = true,
            }
            // hyper would wait for the rest of a first head that has begun.
            if !has_asked.load(Ordering::Relaxed) {
                break Ok(());
            }
            Pin::new(&mut connection).graceful_shutdown();
        };
        let Parts { io, read_buf, .. } = connection.into_parts();
        let stream = io.into_inner();
        match ended {
            Ok(()) if is_closing => end(stream).await,
            Ok(()) => linger(stream).await,
            // hyper has already answered with the problem of the head.
            Err(error) if error.is_parse() => linger(stream).await,
            Err(error) if error.is_timeout() && !read_buf.is_empty() => {
                let words = "timed out waiting for the head of the request";
                let refusal = Refusal::new(StatusCode::REQUEST_TIMEOUT, code::INVALID_REQUEST, words);
                dismiss(stream, refusal.into_answer()).await;
            }
            Err(error) => tracing::debug!(%error, "an HTTP connection failed"),
        }
    }
}

/// A server of one connection, with the limits that every client meets.
pub(crate) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_header_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        // Simple clients look for headers in this form.
        .title_case_headers(true);
    builder
}

/// Answers a client whose request was not read, and ends the connection.
async fn dismiss<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, answer: Answer) {
    let (parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await else { return };
    let body = body.to_bytes();
    let mut head =
        format!("HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: {}\r\n", parts.status, body.len());
    for (name, value) in &parts.headers {
        head.push_str(&format!("{name}: {}\r\n", String::from_utf8_lossy(value.as_bytes())));
    }
    let bytes = [head.as_bytes(), b"\r\n", &body].concat();
    // The answer fits into any socket buffer; a client that blocks it is not waited for.
    if let Ok(Ok(())) = timeout(LINGER, stream.write_all(&bytes)).await {
        linger(stream).await;
    }
}

async fn end<S: AsyncWrite + Unpin>(mut stream: S) {
    // If the client is gone already, nothing is lost.
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use futures::future::BoxFuture;
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    #[derive(Debug)]
    struct Nobody;

    impl Backend for Nobody {
        fn knows(&self, token: &str) -> bool {
            token == "t"
        }

        fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>> {
            Box::pin(std::future::ready(Err("nobody is there".to_owned())))
        }
    }

    const POST: &str = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:1\r\nAuthorization: Bearer t\r\n\
                        Content-Type: application/json\r\n";

    /// The answer to a client that sends `sent` and then waits.
    async fn answer(settings: Settings, sent: &str) -> String {
        let front = Front::new(Nobody, settings);
        let hosts = Hosts::new("127.0.0.1:1".parse().unwrap(), Vec::new());
        let (ours, mut theirs) = tokio::io::duplex(4096);
        // Hangs up when it has its answer.
        let asking = async move {
            theirs.write_all(sent.as_bytes()).await.unwrap();
            let mut got = String::new();
            theirs.read_to_string(&mut got).await.unwrap();
            got
        };
        tokio::join!(front.serve(ours, &hosts), asking).1
    }

    #[tokio::test(start_paused = true)]
    async fn slow_request_gets_408() {
        let begun = tokio::time::Instant::now();
        assert_eq!(answer(Settings::CLIENTS, "").await, "");
        let late = answer(Settings::CLIENTS, "POST /mcp HTTP/1.1\r\nHo").await;
        assert!(
            late.starts_with("HTTP/1.1 408 ") && late.contains("timed out waiting for the head"),
            "{late}"
        );
        assert_eq!(begun.elapsed().as_secs(), 2 * HEAD_DEADLINE.as_secs());
        let late = answer(Settings::CLIENTS, &format!("{POST}Content-Length: 9\r\n\r\n{{")).await;
        assert!(late.starts_with("HTTP/1.1 408 "), "{late}");
    }

    #[tokio::test(start_paused = true)]
    async fn oversized_request_is_refused_unread() {
        let large = answer(Settings::CLIENTS, &format!("{POST}Content-Length: 99999999999\r\n\r\n")).await;
        assert!(large.starts_with("HTTP/1.1 413 "), "{large}");
        // A client that waits for `100 Continue` is refused instead.
        let asked = format!("{POST}Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n");
        assert!(answer(Settings::CLIENTS, &asked).await.starts_with("HTTP/1.1 413 "));
        let many = format!("{POST}{}\r\n", "X: y\r\n".repeat(MAX_HEADERS));
        assert!(answer(Settings::CLIENTS, &many).await.starts_with("HTTP/1.1 431 "));
        let full = answer(Settings { max_connections: 0, ..Settings::CLIENTS }, "").await;
        assert!(full.starts_with("HTTP/1.1 503 ") && full.contains("retry-after: 1\r\n"), "{full}");
    }
    #[tokio::test(start_paused = true)]
    async fn closing_front_does_not_wait_for_idle_clients() {
        for sent in ["", "POST /mcp HTTP/1.1\r\nHo"] {
            let front = Front::new(Nobody, Settings::CLIENTS);
            let hosts = Hosts::new("127.0.0.1:1".parse().unwrap(), Vec::new());
            let (ours, mut theirs) = tokio::io::duplex(4096);
            theirs.write_all(sent.as_bytes()).await.unwrap();
            let begun = tokio::time::Instant::now();
            let close = async {
                tokio::task::yield_now().await;
                front.close();
            };
            tokio::join!(front.serve(ours, &hosts), close);
            assert!(begun.elapsed() < LINGER, "{sent:?}: {:?}", begun.elapsed());
        }
    }

    #[tokio::test]
    async fn excess_connection_gets_503_without_reset() {
        let front = Front::new(Nobody, Settings { max_connections: 0, ..Settings::CLIENTS });
        let hosts = Hosts::new("127.0.0.1:1".parse().unwrap(), Vec::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(&[b'x'; 4096]).await.unwrap();
        let (ours, _) = listener.accept().await.unwrap();
        ours.readable().await.unwrap();
        let talking = async move {
            let mut got = String::new();
            client.read_to_string(&mut got).await.unwrap();
            // Closing with unread bytes would reset the connection, and many clients would miss the answer.
            client.write_all(&[b'x'; 4096]).await.expect("no reset");
            got
        };
        let got = tokio::join!(front.serve(ours, &hosts), talking).1;
        assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
    }
}
