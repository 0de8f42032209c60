//! Accepting connections, and one task per control connection with its requests inside.

use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::codec::{FramedRead, FramedWrite, LinesCodec, LinesCodecError};

use super::hello::{self, HELLO_DEADLINE, Kind, Welcome};
use super::listener::Listener;
use super::ops::{self, Outbox, Outgoing};
use super::wire::{Reply, Request, WireError};
use crate::daemon::Daemon;
use crate::mcp::McpHandler;
use crate::registry::SessionKind;

/// The longest line of a control connection: a command of a few MiB, not a way to fill memory.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 20;

/// Clients at once. Each holds descriptors and, while it speaks, a line; nobody needs hundreds.
const MAX_CONNECTIONS: usize = 256;

/// Requests at once on one connection.
const MAX_REQUESTS: usize = 64;

/// Replies that may wait for a slow reader; beyond that its commands are held back.
const QUEUED_REPLIES: usize = 64;

impl Daemon {
    /// Accepts connections until the daemon shuts down. Connections end with it: those of MCP clients when the
    /// shutdown begins, those of the command line when it is done.
    pub async fn serve(self, listener: Listener, mcp: impl McpHandler) {
        let mcp: Arc<dyn McpHandler> = Arc::new(mcp);
        if let Some(bridge) = &self.shared.mcp_bridge {
            bridge.begin(&self.shared, Arc::clone(&mcp));
        }
        let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.closing() => return,
                accepted = listener.socket.accept() => accepted,
            };
            let mut stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, or a peer that left at once. Others may still be served, but not
                    // faster than the condition can pass.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else {
                let refusal = Welcome::refuse(format!("{MAX_CONNECTIONS} connections are open already"));
                let _ = hello::write_line(&mut stream, &refusal).await;
                continue;
            };
            let (daemon, mcp) = (self.clone(), Arc::clone(&mcp));
            self.shared.tasks.spawn(async move {
                let _seat = seat;
                let ended = daemon.shared.ended.clone();
                tokio::select! {
                    biased;
                    () = ended.cancelled() => {}
                    () = greet(daemon, mcp, stream) => {}
                }
            });
        }
    }
}

async fn greet(daemon: Daemon, mcp: Arc<dyn McpHandler>, mut stream: UnixStream) {
    let hello = match hello::read_hello(&mut stream, HELLO_DEADLINE).await {
        Ok(hello) => hello,
        Err(error) => {
            tracing::debug!(%error, "a connection without a proper greeting");
            let _ = hello::write_line(&mut stream, &Welcome::refuse(error.to_string())).await;
            return;
        }
    };
    if hello::write_line(&mut stream, &Welcome::accept(&daemon.config().paths.state_file)).await.is_err() {
        return;
    }
    match hello.kind {
        Kind::Control => control(daemon, stream).await,
        Kind::Mcp => {
            let session = daemon.open_session(SessionKind::Client);
            tracing::info!(session = %session.id(), client = hello.version, "an MCP client connected");
            tokio::select! {
                biased;
                () = daemon.closing() => {}
                () = mcp.serve(session, hello.mcp, stream) => {}
            }
        }
    }
}

/// Runs requests side by side until the client hangs up, which drops, and thereby cancels, what is left of them.
async fn control(daemon: Daemon, stream: UnixStream) {
    let (read, write) = stream.into_split();
    let (replies, queue) = mpsc::channel(QUEUED_REPLIES);
    let mut writing = JoinSet::new();
    writing.spawn(write_replies(write, queue));
    tokio::select! {
        biased;
        // A client that cannot be written to any more has hung up.
        _ = writing.join_next() => return,
        () = read_requests(daemon, read, replies) => {}
    }
    // The reader is done with the last reply sent; let it out.
    let _ = writing.join_next().await;
}

async fn read_requests(daemon: Daemon, read: OwnedReadHalf, replies: mpsc::Sender<Outgoing>) {
    let session = daemon.open_session(SessionKind::Shell);
    let mut lines = FramedRead::new(read, LinesCodec::new_with_max_length(MAX_LINE_BYTES));
    let mut requests = JoinSet::new();
    loop {
        let line = tokio::select! {
            biased;
            Some(_) = requests.join_next() => continue,
            line = lines.next() => line,
        };
        let refusal = match line {
            None => return,
            Some(Err(LinesCodecError::MaxLineLengthExceeded)) => {
                let error = WireError::invalid(format!("a line is longer than {MAX_LINE_BYTES} bytes"));
                let _ = replies.send(Reply::Error { id: None, error }.into()).await;
                return;
            }
            Some(Err(LinesCodecError::Io(error))) if error.kind() != std::io::ErrorKind::InvalidData => {
                return;
            }
            Some(Err(LinesCodecError::Io(error))) => Some((None, WireError::invalid(error))),
            Some(Ok(line)) => match serde_json::from_str::<Request>(&line) {
                Err(error) => Some((None, WireError::invalid(format!("not a request: {error}")))),
                Ok(request) if requests.len() >= MAX_REQUESTS => Some((
                    Some(request.id),
                    WireError::invalid(format!("{MAX_REQUESTS} requests are under way")),
                )),
                Ok(Request { id, op }) => {
                    let outbox = Outbox::new(id, replies.clone());
                    requests.spawn(ops::run(daemon.clone(), session.clone(), op, outbox));
                    None
                }
            },
        };
        if let Some((id, error)) = refusal
            && replies.send(Reply::Error { id, error }.into()).await.is_err()
        {
            return;
        }
    }
}

async fn write_replies(write: OwnedWriteHalf, mut queue: mpsc::Receiver<Outgoing>) {
    let mut lines = FramedWrite::new(write, LinesCodec::new());
    while let Some(Outgoing { reply, written }) = queue.recv().await {
        let line = match serde_json::to_string(&reply) {
            Ok(line) => line,
            Err(error) => {
                tracing::error!(%error, "a reply does not serialize");
                return;
            }
        };
        if lines.send(line).await.is_err() {
            return;
        }
        if let Some(written) = written {
            let _ = written.send(());
        }
    }
}
