//! How a connection ends so that the client still hears the last answer.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::settings::LINGER;

/// Ends, and throws away what a refused client still sends: closed at once, the connection would be reset and the
/// refusal lost.
pub(crate) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let rest = async {
        let mut bytes = [0; 4096];
        if stream.shutdown().await.is_ok() {
            while matches!(stream.read(&mut bytes).await, Ok(1..)) {}
        }
    };
    // One that goes on for longer is cut off.
    let _ = timeout(LINGER, rest).await;
}
