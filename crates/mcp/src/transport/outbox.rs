//! The sending side: whole lines go through a bounded queue to the one task that writes.
//!
//! A line is queued completely or not at all, so a sender that is dropped never leaves half a line on the wire, and
//! lines are written in the order in which they were queued.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Lines that may wait for a client that reads slowly, before senders wait as well.
const QUEUE: usize = 64;

/// Time limit for writing what was queued before the session ended.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Outbox {
    queue: Option<mpsc::Sender<Vec<u8>>>,
    writer: Option<AbortOnDropHandle<()>>,
}

impl Outbox {
    /// Starts the writer. `closed` is cancelled when the client can no longer be written to.
    pub(super) fn new(
        mut write: impl AsyncWrite + Send + Unpin + 'static,
        closed: CancellationToken,
    ) -> Self {
        let (queue, mut lines) = mpsc::channel::<Vec<u8>>(QUEUE);
        let writer = tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if let Err(error) = write.write_all(&line).await {
                    tracing::debug!(%error, "the client stopped reading");
                    closed.cancel();
                    return;
                }
            }
            if let Err(error) = write.shutdown().await {
                tracing::trace!(%error, "the client disconnected before the session ended");
            }
        });
        Self { queue: Some(queue), writer: Some(AbortOnDropHandle::new(writer)) }
    }

    pub(super) fn sender(&self) -> Option<mpsc::Sender<Vec<u8>>> {
        self.queue.clone()
    }

    /// Queues the reply that waits in `slot`, if any. May be dropped: the reply then stays in its slot.
    pub(super) async fn flush(&self, slot: &mut Option<Value>) {
        if slot.is_none() {
            return;
        }
        let permit = match &self.queue {
            Some(queue) => queue.reserve().await.ok(),
            None => None,
        };
        if let (Some(permit), Some(reply)) = (permit, slot.take()) {
            permit.send(line(&reply.to_string()));
        }
    }

    /// Writes what is queued, for a bounded time.
    pub(super) async fn close(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take()
            && tokio::time::timeout(FLUSH_TIMEOUT, writer).await.is_err()
        {
            tracing::debug!("the client did not read its last answers");
        }
    }
}

pub(super) fn line(json: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(json.len() + 1);
    line.extend_from_slice(json.as_bytes());
    line.push(b'\n');
    line
}

pub(super) fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the client closed the connection")
}
