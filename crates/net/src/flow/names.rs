//! Queries for names over TCP, at port 53 of the gateway's address.
//!
//! A connection asks one query after the other. It ends when the guest closes it, pauses for too long, or sends what
//! cannot be a query. Names are not judged here: [`dns`](crate::dns) does that.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;

pub(crate) const PORT: u16 = 53;

/// Longest pause between two queries of one connection.
const IDLE: Duration = Duration::from_secs(10);

/// Shortest query: a DNS header. A shorter one ends the connection.
const SHORTEST: u16 = 12;

/// Answers the queries of one connection. `None` from `answer` ends it, and each answer waits for its turn among
/// `queries`.
pub(crate) async fn serve<F: Future<Output = Option<Vec<u8>>>>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    queries: &Semaphore,
    answer: impl Fn(Vec<u8>) -> F,
) {
    loop {
        let received = tokio::time::timeout(IDLE, async {
            let length = stream.read_u16().await.ok().filter(|length| *length >= SHORTEST)?;
            let mut query = vec![0; usize::from(length)];
            stream.read_exact(&mut query).await.ok()?;
            Some(query)
        });
        let Ok(Some(query)) = received.await else { return };
        let Ok(_permit) = queries.acquire().await else { return };
        let Some(answer) = answer(query).await else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        let message = [&length.to_be_bytes()[..], &answer].concat();
        if stream.write_all(&message).await.is_err() {
            return;
        }
    }
}
