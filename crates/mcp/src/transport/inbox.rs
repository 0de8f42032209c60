//! rmcp's transport over a byte stream: the receiving side, and the ids of requests in flight.

use std::collections::HashSet;
use std::future::Future;
use std::io;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, GetMeta, JsonRpcMessage,
    ProtocolVersion, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::lines::{Line, LineReader};
use super::outbox::{Outbox, gone, line};
use super::parse::{Incoming, error_reply, parse};

/// Requests that one client may have running at once. Each costs memory and perhaps a process in a guest. No client
/// waits for so many answers, and one that never reads must not fill the daemon's memory.
const MAX_IN_FLIGHT: usize = 1024;

/// JSON-RPC leaves -32000 to -32099 to servers.
const BUSY: ErrorCode = ErrorCode(-32000);

pub(crate) struct LineTransport<R> {
    lines: LineReader<R>,
    outbox: Outbox,
    in_flight: InFlight,
    /// A reply of the transport itself that has not been queued yet.
    reply: Option<Value>,
    /// Whether the handshake, or the first stateless request, has been passed on. Before that rmcp treats a
    /// notification as an error and closes the connection.
    opened: bool,
    /// Cancelled when the client is gone, so that work for it ends at once.
    closed: CancellationToken,
}

impl<R: AsyncRead + Send + Unpin> LineTransport<R> {
    pub(crate) fn new(
        read: R,
        write: impl AsyncWrite + Send + Unpin + 'static,
        max_line: usize,
        closed: CancellationToken,
    ) -> Self {
        Self {
            lines: LineReader::new(read, max_line),
            outbox: Outbox::new(write, closed.clone()),
            in_flight: InFlight::default(),
            reply: None,
            opened: false,
            closed,
        }
    }

    /// Answers every request with one error, until the client disconnects.
    pub(crate) async fn refuse_all(mut self, message: &str) {
        while let Some(incoming) = self.receive().await {
            if let JsonRpcMessage::Request(request) = incoming {
                let id = Some(request.id.into_json_value());
                self.reply = Some(error_reply(id, ErrorCode::INVALID_PARAMS, message));
            }
        }
        self.outbox.close().await;
    }

    /// Returns the message if rmcp is to see it.
    fn admit(&mut self, message: ClientJsonRpcMessage) -> Option<ClientJsonRpcMessage> {
        match &message {
            JsonRpcMessage::Request(request) => {
                if let Err((code, reason)) = self.in_flight.begin(&request.id) {
                    let id = Some(request.id.clone().into_json_value());
                    self.reply = Some(error_reply(id, code, &reason));
                    return None;
                }
                self.opened = self.opened || opens_session(&request.request);
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.in_flight.end(id);
                }
                if !self.opened {
                    return None;
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                if !self.opened {
                    return None;
                }
            }
        }
        Some(message)
    }
}

/// Whether rmcp leaves its opening phase with this request.
fn opens_session(request: &ClientRequest) -> bool {
    if matches!(request, ClientRequest::InitializeRequest(_)) {
        return true;
    }
    let probe = matches!(request, ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_));
    let meta = request.get_meta();
    !probe
        && meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).is_empty()
        && meta.protocol_version().is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version))
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for LineTransport<R> {
    type Error = io::Error;

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        match &item {
            JsonRpcMessage::Response(response) => self.in_flight.end(&response.id),
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    self.in_flight.end(id);
                }
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
        let queue = self.outbox.sender();
        async move {
            let json = serde_json::to_string(&item)?;
            queue.ok_or_else(gone)?.send(line(&json)).await.map_err(|_| gone())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            self.outbox.flush(&mut self.reply).await;
            match self.lines.next().await {
                Line::Whole(bytes) => match parse(&bytes) {
                    Incoming::Message(message) => {
                        if let Some(message) = self.admit(*message) {
                            return Some(message);
                        }
                    }
                    Incoming::Refused(reply) => self.reply = Some(reply),
                    Incoming::Nothing => {}
                },
                Line::TooLong { id } => {
                    let message = format!(
                        "the request is longer than {} MiB and was skipped; write large files in parts, for \
                         example with exec and >>",
                        super::MAX_LINE / (1024 * 1024)
                    );
                    self.reply = Some(error_reply(id, ErrorCode::INVALID_REQUEST, &message));
                }
                Line::End => {
                    self.closed.cancel();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.closed.cancel();
        self.outbox.close().await;
        Ok(())
    }
}

/// The ids of requests that were passed on and not yet answered.
#[derive(Default)]
struct InFlight(HashSet<RequestId>);

impl InFlight {
    fn begin(&mut self, id: &RequestId) -> Result<(), (ErrorCode, String)> {
        if self.0.len() >= MAX_IN_FLIGHT {
            let message =
                format!("{MAX_IN_FLIGHT} requests are running already; wait for an answer or cancel one");
            return Err((BUSY, message));
        }
        if !self.0.insert(id.clone()) {
            let message = "a request with this id is still running; use another id".to_owned();
            return Err((ErrorCode::INVALID_REQUEST, message));
        }
        Ok(())
    }

    fn end(&mut self, id: &RequestId) {
        self.0.remove(id);
    }
}
