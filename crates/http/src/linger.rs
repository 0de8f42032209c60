//! Closes a connection so that the client can still read the last answer.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::settings::LINGER;

/// Shuts the sending side down, then reads and discards what a refused client still sends. Closing at once would reset
/// the connection, and the client would lose the refusal.
pub(crate) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let rest = async {
        let mut bytes = [0; 4096];
        if stream.shutdown().await.is_ok() {
            while matches!(stream.read(&mut bytes).await, Ok(1..)) {}
        }
    };
    // A client that sends for longer is cut off.
    let _ = timeout(LINGER, rest).await;
}
