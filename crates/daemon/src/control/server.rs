//! Accepts connections. Each control connection is one task, which runs the requests of that connection.

use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::codec::{FramedRead, FramedWrite, LinesCodec, LinesCodecError};

use super::failure::ShellHint;
use super::hello::{self, HELLO_DEADLINE, Kind, Welcome};
use super::listener::Listener;
use super::ops::{self, Outbox, Outgoing};
use super::wire::{Reply, Request, WireError};
use crate::daemon::Daemon;
use crate::inside::Inside;
use crate::mcp::McpHandler;
use crate::registry::SessionKind;

/// The longest line of a control connection: enough for a command of a few MiB, but not to fill the memory.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 20;

/// The most clients at once. Each takes descriptors and, while it sends, the memory of one line. Ordinary use needs
/// far fewer.
const MAX_CONNECTIONS: usize = 256;

/// Requests at once on one connection.
const MAX_REQUESTS: usize = 64;

/// Replies that may wait for a slow client; beyond that its commands are held back.
const QUEUED_REPLIES: usize = 64;

impl Daemon {
    /// Accepts connections until the daemon shuts down. Connections of MCP clients end when the shutdown begins, those
    /// of the command line when it is done.
    pub async fn serve(self, listener: Listener, mcp: impl McpHandler, hint: ShellHint) {
        let mcp: Arc<dyn McpHandler> = Arc::new(mcp);
        if let Some(bridge) = &self.shared.mcp_bridge {
            let shared = Arc::downgrade(&self.shared);
            bridge.begin(Arc::new(Inside { shared, mcp: Arc::clone(&mcp) }));
        }
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.closing() => return,
                accepted = listener.socket.accept() => accepted,
            };
            let mut stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // The daemon is out of descriptors, or the client disconnected at once. Continue to serve others,
                    // but not faster than the condition can pass.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                let refusal = Welcome::refuse(format!(
                    "{MAX_CONNECTIONS} connections are already open, the most there may be"
                ));
                let _ = hello::write_line(&mut stream, &refusal).await;
                continue;
            };
            let (daemon, mcp) = (self.clone(), Arc::clone(&mcp));
            self.shared.tasks.spawn(async move {
                let _permit = permit;
                let ended = daemon.shared.ended.clone();
                tokio::select! {
                    biased;
                    () = ended.cancelled() => {}
                    () = greet(daemon, mcp, hint, stream) => {}
                }
            });
        }
    }
}

async fn greet(daemon: Daemon, mcp: Arc<dyn McpHandler>, hint: ShellHint, mut stream: UnixStream) {
    let hello = match hello::read_hello(&mut stream, HELLO_DEADLINE).await {
        Ok(hello) => hello,
        Err(error) => {
            tracing::debug!(%error, "connection closed: bad greeting");
            let _ = hello::write_line(&mut stream, &Welcome::refuse(error.to_string())).await;
            return;
        }
    };
    if hello::write_line(&mut stream, &Welcome::accept(&daemon.config().paths.state_file)).await.is_err() {
        return;
    }
    match hello.kind {
        Kind::Control => control(daemon, hint, stream).await,
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

/// Runs requests concurrently until the client disconnects, which drops, and thereby cancels, those that are left.
async fn control(daemon: Daemon, hint: ShellHint, stream: UnixStream) {
    let (read, write) = stream.into_split();
    let (replies, queue) = mpsc::channel(QUEUED_REPLIES);
    let mut writing = JoinSet::new();
    writing.spawn(write_replies(write, queue));
    tokio::select! {
        biased;
        // If a client cannot be written to any more, it has disconnected.
        _ = writing.join_next() => return,
        () = read_requests(daemon, hint, read, replies) => {}
    }
    // The reader has ended and the last reply is queued; wait until it is written.
    let _ = writing.join_next().await;
}

async fn read_requests(
    daemon: Daemon,
    hint: ShellHint,
    read: OwnedReadHalf,
    replies: mpsc::Sender<Outgoing>,
) {
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
                let error = WireError::invalid(format!("the request is longer than {MAX_LINE_BYTES} bytes"));
                let _ = replies.send(Reply::Error { id: None, error }.into()).await;
                return;
            }
            Some(Err(LinesCodecError::Io(error))) if error.kind() != std::io::ErrorKind::InvalidData => {
                return;
            }
            Some(Err(LinesCodecError::Io(error))) => Some((None, WireError::invalid(error))),
            Some(Ok(line)) => match serde_json::from_str::<Request>(&line) {
                Err(error) => Some((None, WireError::invalid(format!("malformed request: {error}")))),
                Ok(request) if requests.len() >= MAX_REQUESTS => Some((
                    Some(request.id),
                    WireError::invalid(format!(
                        "{MAX_REQUESTS} requests are already running on this connection, the most there may be"
                    )),
                )),
                Ok(Request { id, op }) => {
                    let outbox = Outbox::new(id, replies.clone());
                    requests.spawn(ops::run(daemon.clone(), session.clone(), op, outbox, hint));
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
                tracing::error!(%error, "cannot serialize a reply");
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
