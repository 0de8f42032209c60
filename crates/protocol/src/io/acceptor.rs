//! The guest's end of the link: accepts one connection after another on one port.

use std::future::poll_fn;
use std::io;
use std::mem;

use bytes::Buf as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::core::Core;
use super::stream::{LinkStream, Side};
use crate::link::{Event, Nonce, farewell, sync_ack};

/// Waits for openings on a stream.
#[derive(Debug)]
pub struct Acceptor<S> {
    core: CoreState<S>,
}

/// The stream with its codec state, between connections or while one uses it.
#[derive(Debug)]
enum CoreState<S> {
    /// No connection uses it.
    Idle(Core<S>),
    /// The connection has the stream and sends it back when it is dropped.
    InUse(oneshot::Receiver<Core<S>>),
    /// A connection ended without sending it back.
    Lost,
}

/// The reason for which no connection was accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The host is not connected.
    #[error("the host closed the connection")]
    HungUp,
    /// The stream failed.
    #[error("the link to the host failed")]
    Stream(#[source] io::Error),
    /// A connection ended without giving the stream back.
    #[error("the link to the host was lost")]
    Gone,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Acceptor<S> {
    /// Takes over a stream whose state is unknown. If the host still has a connection to an earlier agent on it, the
    /// host is told that this connection has ended.
    pub fn new(stream: S) -> Self {
        let mut core = Core::new(stream);
        core.push(&farewell());
        Self { core: CoreState::Idle(core) }
    }

    /// The stream, once the last connection was dropped.
    pub async fn stream(&mut self) -> Result<&mut S, AcceptError> {
        Ok(&mut self.core().await?.stream)
    }

    /// Waits for the host to open a connection and answers it. The previous connection must have been dropped.
    pub async fn accept(&mut self) -> Result<LinkStream<S>, AcceptError> {
        let core = self.core().await?;
        let nonce = match core.requested.take() {
            Some(nonce) => nonce,
            None => next_sync(core).await?,
        };
        core.discard_output();
        core.push(&sync_ack(&nonce));
        poll_fn(|cx| core.poll_drain(cx)).await.map_err(AcceptError::Stream)?;
        let (give_back, returned) = oneshot::channel();
        match mem::replace(&mut self.core, CoreState::InUse(returned)) {
            CoreState::Idle(core) => {
                Ok(LinkStream::new(core, Side::Guest { nonce, give_back: Some(give_back) }))
            }
            CoreState::InUse(_) | CoreState::Lost => Err(AcceptError::Gone),
        }
    }

    async fn core(&mut self) -> Result<&mut Core<S>, AcceptError> {
        if let CoreState::InUse(returned) = &mut self.core {
            self.core = returned.await.map_or(CoreState::Lost, CoreState::Idle);
        }
        match &mut self.core {
            CoreState::Idle(core) => Ok(core),
            CoreState::InUse(_) | CoreState::Lost => Err(AcceptError::Gone),
        }
    }
}

/// Reads up to the next SYNC. Everything before it belongs to an ended connection and is skipped.
async fn next_sync<S: AsyncRead + AsyncWrite + Unpin>(core: &mut Core<S>) -> Result<Nonce, AcceptError> {
    loop {
        let mut input: &[u8] = &core.input;
        let mut found = None;
        while let Some(event) = core.decoder.decode(&mut input, usize::MAX) {
            match event {
                Event::Sync(nonce) => {
                    found = Some(nonce);
                    break;
                }
                Event::SyncAck(_) | Event::Data(_) | Event::Close | Event::Lost(_) => {}
            }
        }
        let used = core.input.len() - input.len();
        core.input.advance(used);
        if let Some(nonce) = found {
            return Ok(nonce);
        }
        let received = poll_fn(|cx| {
            let received = core.poll_fill(cx);
            if received.is_pending() {
                // Sends the farewell if the host is connected. The result is ignored: a failed stream fails in reading
                // as well.
                drop(core.poll_drain(cx));
            }
            received
        });
        if received.await.map_err(AcceptError::Stream)? == 0 {
            return Err(AcceptError::HungUp);
        }
    }
}
