//! What carries the link: a machine's port, or a socket in tests.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// A byte stream to the host.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// After the host hung up: waits until it is back. False when it can never be.
    fn wait_peer(&mut self) -> impl Future<Output = io::Result<bool>> + Send;
}

impl Transport for UnixStream {
    async fn wait_peer(&mut self) -> io::Result<bool> {
        Ok(false)
    }
}
