//! The byte stream with its codec state, which both outlive a connection.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::link::{Decoder, HEADER_BYTES, MAX_PAYLOAD, Nonce, data_header};

/// Bytes asked of the stream at once.
const READ_BYTES: usize = 64 * 1024;

/// Unsent bytes beyond which a writer has to wait: four frames.
const MAX_UNSENT: usize = 4 * (MAX_PAYLOAD + HEADER_BYTES);

#[derive(Debug)]
pub(super) struct Core<S> {
    pub(super) stream: S,
    pub(super) decoder: Decoder,
    /// Received and not yet decoded.
    pub(super) input: BytesMut,
    /// Encoded and not yet sent; begins in the middle of a frame after a partial write.
    output: BytesMut,
    /// The connection that a SYNC requested and that is not accepted yet.
    pub(super) requested: Option<Nonce>,
}

impl<S> Core<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            decoder: Decoder::new(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            requested: None,
        }
    }

    /// Discards the unsent bytes of an ended connection.
    pub(super) fn discard_output(&mut self) {
        self.output.clear();
    }

    pub(super) fn push(&mut self, frame: &[u8]) {
        self.output.extend_from_slice(frame);
    }

    /// Appends one data frame with as much of `slices` as fits; returns how much that was.
    pub(super) fn push_data(&mut self, slices: &[IoSlice<'_>]) -> usize {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let length = wanted.min(MAX_PAYLOAD);
        self.output.reserve(HEADER_BYTES + length);
        self.output.extend_from_slice(&data_header(length));
        let mut left = length;
        for slice in slices {
            let take = slice.len().min(left);
            self.output.extend_from_slice(&slice[..take]);
            left -= take;
        }
        length
    }

    pub(super) fn is_full(&self) -> bool {
        self.output.len() >= MAX_UNSENT
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Core<S> {
    /// Receives more input. Returns the number of bytes, 0 at the end of the stream.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.reserve(READ_BYTES);
        let spare = &mut self.input.spare_capacity_mut()[..READ_BYTES];
        let mut buffer = ReadBuf::uninit(spare);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        let received = buffer.filled().len();
        // SAFETY: `ReadBuf` guarantees that its filled part, which begins where the spare capacity does, is
        // initialised.
        unsafe { self.input.set_len(self.input.len() + received) };
        Poll::Ready(Ok(received))
    }

    /// Sends all encoded bytes.
    pub(super) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.output))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(sent);
        }
        Poll::Ready(Ok(()))
    }
}
