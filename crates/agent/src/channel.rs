//! HTTP/2 over one link, with every buffer bounded, and the task that drives it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use agentiso_protocol::io::LinkStream;
use agentiso_protocol::limits;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;

/// The HPACK table that the guest's encoder may use. Nothing in our headers repeats often enough for a larger one.
const HEADER_TABLE_BYTES: u32 = 4096;

/// Streams that we reset and that the guest may still send on before we forget them.
const MAX_RESET_STREAMS: usize = 1024;

/// Sends requests on the connection. Requests beyond the guest's stream limit wait their turn.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    sender: http2::SendRequest<Body>,
}

/// Owns the task that drives the connection, and knows when it has ended.
#[derive(Debug)]
pub(super) struct Connection {
    ended: CancellationToken,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    pub(super) fn is_closed(&self) -> bool {
        self.ended.is_cancelled()
    }

    pub(super) async fn closed(&self) {
        self.ended.cancelled().await;
    }
}

/// Begins HTTP/2 on a link that was just opened.
pub(super) async fn start(link: LinkStream<UnixStream>) -> Result<(Channel, Connection), hyper::Error> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(limits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES)
        .max_frame_size(limits::MAX_HTTP2_FRAME_BYTES)
        .max_header_list_size(limits::MAX_HEADER_LIST_BYTES)
        .header_table_size(HEADER_TABLE_BYTES)
        .max_concurrent_reset_streams(MAX_RESET_STREAMS)
        .max_send_buf_size(limits::MAX_SEND_BUFFER_BYTES)
        .handshake(TokioIo::new(link))
        .await?;
    let ended = CancellationToken::new();
    let guard = ended.clone().drop_guard();
    let driver = tokio::spawn(async move {
        // Dropped with the task in every case, even if the task is aborted.
        let _ended = guard;
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to a guest agent ended");
        }
    });
    Ok((Channel { sender }, Connection { ended, _driver: AbortOnDropHandle::new(driver) }))
}

impl tower::Service<http::Request<Body>> for Channel {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}
