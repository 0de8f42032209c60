//! Pipes between async tasks and threads that block on bytes, and the progress reports on the way.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use agentiso_tree::TreeError;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use crate::vms::Progress;

/// The number of chunks on their way between a thread and a connection.
pub(super) const QUEUED: usize = 4;

const CHUNK: usize = 128 << 10;

/// The number of bytes between two reports.
const REPORT_AFTER: u64 = 4 << 20;

const MIB: u64 = 1 << 20;

/// Counts bytes and reports the count from time to time.
pub(super) struct Meter {
    word: &'static str,
    expected: Option<u64>,
    total: u64,
    reported: u64,
    progress: Progress,
}

impl Meter {
    pub(super) fn new(word: &'static str, expected: Option<u64>, progress: &Progress) -> Self {
        Self { word, expected, total: 0, reported: 0, progress: progress.clone() }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.total += bytes as u64;
        if self.total - self.reported < REPORT_AFTER {
            return;
        }
        self.reported = self.total;
        let fraction = self.expected.map(|all| (self.total as f64 / all.max(1) as f64).min(1.0) as f32);
        self.progress.report(&format!("{} MiB {}", self.total / MIB, self.word), fraction);
    }
}

/// A source whose bytes are counted.
pub(super) struct Counted<R> {
    source: R,
    meter: Meter,
}

impl<R> Counted<R> {
    pub(super) fn new(source: R, meter: Meter) -> Self {
        Self { source, meter }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = target.filled().len();
        ready!(Pin::new(&mut self.source).poll_read(cx, target))?;
        let count = target.filled().len() - before;
        self.meter.add(count);
        Poll::Ready(Ok(()))
    }
}

/// The writing end for a thread whose bytes a task sends.
pub(super) struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    buffer: BytesMut,
}

impl Chunks {
    pub(super) fn new(sender: mpsc::Sender<io::Result<Bytes>>) -> Self {
        Self { sender, buffer: BytesMut::new() }
    }

    fn send(&mut self) -> io::Result<()> {
        let chunk = self.buffer.split().freeze();
        self.sender.blocking_send(Ok(chunk)).map_err(|_gone| io::ErrorKind::BrokenPipe.into())
    }

    /// Sends the rest, or the failure: an end without either would look like a complete transfer.
    pub(super) fn finish(mut self, failure: Option<&TreeError>) {
        // If the receiver is gone, it has an error of its own.
        let _ = match failure {
            Some(error) => {
                self.sender.blocking_send(Err(io::Error::other(error.to_string()))).map_err(io::Error::other)
            }
            None => self.send(),
        };
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..count]);
        if self.buffer.len() == CHUNK {
            self.send()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reading end for a thread whose bytes a task received.
pub(super) struct Received {
    chunks: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Received {
    pub(super) fn new(chunks: mpsc::Receiver<Bytes>) -> Self {
        Self { chunks, current: Bytes::new() }
    }
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.current = chunk,
                None => return Ok(0),
            }
        }
        let count = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
