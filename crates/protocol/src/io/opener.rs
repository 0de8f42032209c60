//! The host's end of the link: opens a connection on a stream whose state is unknown.

use std::io;
use std::time::Duration;

use bytes::Buf as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};

use super::core::Core;
use super::stream::{LinkStream, Side};
use crate::link::{AckSearch, Nonce, opening};

/// The time without an answer after which the opening is repeated. An opening gets lost when the agent dies between
/// reading and answering it. While the guest boots, the opening waits in the port.
const REPEAT_AFTER: Duration = Duration::from_secs(1);

/// The reason for which no connection was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The guest did not answer in time.
    #[error("the guest agent did not answer in time")]
    Deadline,
    /// The other end closed the stream.
    #[error("the guest agent's channel was closed")]
    Closed,
    /// The stream failed.
    #[error("the guest agent's channel failed")]
    Stream(#[source] io::Error),
}

/// Opens a connection named `nonce`. It must be random, because only it distinguishes the guest's answer from old
/// bytes.
pub async fn open<S>(stream: S, nonce: Nonce, deadline: Instant) -> Result<LinkStream<S>, OpenError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    timeout_at(deadline, negotiate(stream, nonce)).await.unwrap_or(Err(OpenError::Deadline))
}

async fn negotiate<S>(stream: S, nonce: Nonce) -> Result<LinkStream<S>, OpenError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut search = AckSearch::new(&nonce);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let bytes = opening(&nonce);
    let mut unsent = bytes.as_slice();
    let mut received = vec![0; 16 * 1024];
    let mut repeat = interval_at(Instant::now() + REPEAT_AFTER, REPEAT_AFTER);
    repeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let rest = loop {
        tokio::select! {
            // The answer ends the loop, so reading comes first. Repeating comes last, because it is only needed when
            // nothing else happens.
            biased;
            result = reader.read(&mut received) => {
                let count = result.map_err(OpenError::Stream)?;
                if count == 0 {
                    return Err(OpenError::Closed);
                }
                if let Some(end) = search.feed(&received[..count]) {
                    break received[end..count].to_vec();
                }
            }
            result = writer.write(unsent), if !unsent.is_empty() => {
                unsent.advance(result.map_err(OpenError::Stream)?);
            }
            _ = repeat.tick(), if unsent.is_empty() => unsent = &bytes,
        }
    };
    let mut core = Core::new(reader.unsplit(writer));
    // A repetition that was begun has to be finished: otherwise the guest would take the next frame for a part of it.
    core.push(if unsent.len() == bytes.len() { &[] } else { unsent });
    core.input.extend_from_slice(&rest);
    Ok(LinkStream::new(core, Side::Host { nonce }))
}
