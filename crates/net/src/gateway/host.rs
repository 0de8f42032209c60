//! The host's end of a TCP flow.

use std::io;

use rustix::net::{Shutdown, shutdown};
use tokio::net::{TcpStream, UnixStream};

/// A connection on the host. If it is dropped before it was [finished](Host::finished), it is reset, so that the other
/// side does not take a partial transfer for a complete one.
#[derive(Debug)]
pub(crate) struct Host {
    stream: Stream,
    finished: bool,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    /// One of our own services is at the other end.
    Service(UnixStream),
}

impl Host {
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        Self { stream: Stream::Tcp(stream), finished: false }
    }

    pub(crate) fn service(stream: UnixStream) -> Self {
        Self { stream: Stream::Service(stream), finished: false }
    }

    pub(crate) fn try_read(&self, space: &mut [u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_read(space),
            Stream::Service(stream) => stream.try_read(space),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Service(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until reading may return bytes or an error.
    pub(crate) async fn readable(&self) {
        // Reading returns an error of the socket.
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.readable().await,
            Stream::Service(stream) => stream.readable().await,
        };
    }

    pub(crate) async fn writable(&self) {
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.writable().await,
            Stream::Service(stream) => stream.writable().await,
        };
    }

    /// Nothing more will be written.
    pub(crate) fn end_writing(&self) {
        // It fails only if the connection is gone, which reading shows.
        let _ = match &self.stream {
            Stream::Tcp(stream) => shutdown(stream, Shutdown::Write),
            Stream::Service(stream) => shutdown(stream, Shutdown::Write),
        };
    }

    /// Both directions ended properly.
    pub(crate) fn finished(&mut self) {
        self.finished = true;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let (Stream::Tcp(stream), false) = (&self.stream, self.finished) {
            let _ = stream.set_zero_linger();
        }
    }
}
