//! The transport of the link: the port of a VM, or a socket in tests.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// A byte stream to the host.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Waits until the host connects again after it hung up. Returns false if it never can.
    fn wait_peer(&mut self) -> impl Future<Output = io::Result<bool>> + Send;
}

impl Transport for UnixStream {
    async fn wait_peer(&mut self) -> io::Result<bool> {
        Ok(false)
    }
}
