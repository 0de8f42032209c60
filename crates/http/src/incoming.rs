//! The reading side of a connection: heads, bodies of bounded length, and whether the client is still there.

use std::io;

use bytes::{Buf, BytesMut};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::head::{Framing, Head, HeadError, MAX_HEAD};
use crate::settings::{BETWEEN_REQUESTS, BODY_DEADLINE, HEAD_DEADLINE, LINGER};

/// A line that says how long a chunk is, or a trailer.
const MAX_LINE: usize = 1024;

/// What follows the last chunk.
const MAX_TRAILERS: usize = 32;

/// How much is read at once.
const READ_SIZE: usize = 16 * 1024;

#[derive(Debug, Error)]
pub(crate) enum ReadError {
    /// There is nobody to tell.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the request did not come in time")]
    TimedOut,
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error("a chunk of the body is malformed")]
    Chunk,
}

#[derive(Debug)]
pub(crate) struct Incoming<R> {
    read: R,
    /// Read and not yet used.
    buffer: BytesMut,
    /// Nothing was asked yet.
    is_fresh: bool,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(crate) fn new(read: R) -> Self {
        Self { read, buffer: BytesMut::new(), is_fresh: true }
    }

    /// The next request's head; `None` if the client has no further one.
    pub(crate) async fn head(&mut self) -> Result<Option<Head>, ReadError> {
        if self.buffer.is_empty() {
            let patience = if self.is_fresh { HEAD_DEADLINE } else { BETWEEN_REQUESTS };
            match timeout(patience, self.fill()).await {
                Err(_) | Ok(Ok(0)) => return Ok(None),
                Ok(Err(error)) => return Err(error.into()),
                Ok(Ok(_)) => {}
            }
        }
        timeout(HEAD_DEADLINE, self.rest_of_head()).await.map_err(|_| ReadError::TimedOut)?
    }

    async fn rest_of_head(&mut self) -> Result<Option<Head>, ReadError> {
        loop {
            // Some clients end a body with a line feed that belongs to nothing.
            while self.buffer.starts_with(b"\r\n") {
                self.buffer.advance(2);
            }
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = Head::parse(&self.buffer[..end])?;
                self.buffer.advance(end + 4);
                self.is_fresh = false;
                return Ok(Some(head));
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(HeadError::TooLong.into());
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// A body of at most `max` bytes. What is known to be longer is refused before it is read.
    pub(crate) async fn body(&mut self, framing: Framing, max: usize) -> Result<Vec<u8>, ReadError> {
        let reading = async {
            match framing {
                Framing::Length(length) => {
                    let length = usize::try_from(length).ok().filter(|length| *length <= max);
                    let mut body = Vec::new();
                    self.take(length.ok_or(ReadError::TooLarge(max))?, &mut body).await?;
                    Ok(body)
                }
                Framing::Chunked => self.chunks(max).await,
            }
        };
        timeout(BODY_DEADLINE, reading).await.map_err(|_| ReadError::TimedOut)?
    }

    async fn chunks(&mut self, max: usize) -> Result<Vec<u8>, ReadError> {
        let mut body = Vec::new();
        loop {
            let line = self.line().await?;
            let length = chunk_length(&line).ok_or(ReadError::Chunk)?;
            if length > max.saturating_sub(body.len()) {
                return Err(ReadError::TooLarge(max));
            }
            if length == 0 {
                break;
            }
            self.take(length, &mut body).await?;
            if !self.line().await?.is_empty() {
                return Err(ReadError::Chunk);
            }
        }
        for _ in 0..MAX_TRAILERS {
            if self.line().await?.is_empty() {
                return Ok(body);
            }
        }
        Err(ReadError::Chunk)
    }

    async fn line(&mut self) -> Result<Vec<u8>, ReadError> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = self.buffer.split_to(end).to_vec();
                self.buffer.advance(2);
                return Ok(line);
            }
            if self.buffer.len() > MAX_LINE {
                return Err(ReadError::Chunk);
            }
            self.fill_some().await?;
        }
    }

    async fn take(&mut self, mut length: usize, body: &mut Vec<u8>) -> Result<(), ReadError> {
        while length > 0 {
            if self.buffer.is_empty() {
                self.fill_some().await?;
            }
            let part = self.buffer.split_to(length.min(self.buffer.len()));
            // Grown by what has come and not by what was promised.
            body.extend_from_slice(&part);
            length -= part.len();
        }
        Ok(())
    }

    /// Resolves when the client has gone. What it sends meanwhile is kept for later, up to a point beyond which it can
    /// no longer be seen going. May be dropped at any time.
    pub(crate) async fn hung_up(&mut self) {
        while self.buffer.len() <= MAX_HEAD {
            if matches!(self.fill().await, Ok(0) | Err(_)) {
                return;
            }
        }
        std::future::pending().await
    }

    /// Throws away what a refused client still sends, for a while.
    pub(crate) async fn linger(&mut self) {
        let rest = async {
            loop {
                self.buffer.clear();
                if matches!(self.fill().await, Ok(0) | Err(_)) {
                    return;
                }
            }
        };
        // One that goes on for longer is cut off.
        let _ = timeout(LINGER, rest).await;
    }

    async fn fill_some(&mut self) -> Result<(), ReadError> {
        match self.fill().await? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            _ => Ok(()),
        }
    }

    async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ_SIZE);
        self.read.read_buf(&mut self.buffer).await
    }
}

/// Extensions of a chunk mean nothing to us.
fn chunk_length(line: &[u8]) -> Option<usize> {
    let digits = std::str::from_utf8(line).ok()?.split(';').next()?.trim();
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    usize::from_str_radix(digits, 16).ok().filter(|_| is_plain)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    async fn body(bytes: &[u8], framing: Framing) -> Result<Vec<u8>, ReadError> {
        Incoming::new(bytes).body(framing, 10).await
    }

    #[tokio::test]
    async fn a_body_may_come_in_chunks() {
        let read = body(b"4\r\nabcd\r\n2;x=y\r\nef\r\n0\r\nTrailer: x\r\n\r\n", Framing::Chunked).await;
        assert_eq!(read.unwrap(), b"abcdef");
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused_however_it_comes() {
        assert!(matches!(body(b"", Framing::Length(11)).await, Err(ReadError::TooLarge(10))));
        assert!(matches!(body(b"", Framing::Length(u64::MAX)).await, Err(ReadError::TooLarge(10))));
        let chunks = b"9\r\nabcdefghi\r\n2\r\nab\r\n0\r\n\r\n";
        assert!(matches!(body(chunks, Framing::Chunked).await, Err(ReadError::TooLarge(10))));
        let huge = b"ffffffffffffffff\r\n";
        assert!(matches!(body(huge, Framing::Chunked).await, Err(ReadError::TooLarge(10))));
    }

    #[tokio::test]
    async fn chunks_that_are_none_are_refused() {
        for wrong in [&b"-1\r\n"[..], b"\r\n", b"1\r\nabc\r\n", b"zz\r\n", b"fffffffffffffffff\r\n"] {
            assert!(matches!(body(wrong, Framing::Chunked).await, Err(ReadError::Chunk)), "{wrong:?}");
        }
    }

    #[tokio::test]
    async fn requests_follow_each_other() {
        let mut incoming =
            Incoming::new(&b"POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi\r\nGET /b HTTP/1.1\r\n\r\n"[..]);
        let first = incoming.head().await.unwrap().unwrap();
        assert_eq!(incoming.body(first.framing, 10).await.unwrap(), b"hi");
        assert_eq!(incoming.head().await.unwrap().unwrap().path, "/b");
        assert!(incoming.head().await.unwrap().is_none());
    }

    proptest! {
        #[test]
        fn any_chunks_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let read = runtime.block_on(body(&bytes, Framing::Chunked));
            prop_assert!(read.map_or(true, |body| body.len() <= 10));
        }
    }
}
