//! The guest's end: one port, one connection after another.

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
    place: Place<S>,
}

#[derive(Debug)]
enum Place<S> {
    Here(Core<S>),
    /// The connection has it and sends it back when it is dropped.
    Lent(oneshot::Receiver<Core<S>>),
    Gone,
}

/// Why no connection was accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Nobody is at the other end.
    #[error("the host hung up")]
    HungUp,
    /// The stream failed.
    #[error("the link to the host failed")]
    Stream(#[source] io::Error),
    /// A connection ended without giving the stream back.
    #[error("the link was lost with its connection")]
    Gone,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Acceptor<S> {
    /// Takes over a stream whose state is unknown. A host that is connected to a predecessor on it will be told that
    /// this connection is over.
    pub fn new(stream: S) -> Self {
        let mut core = Core::new(stream);
        core.push(&farewell());
        Self { place: Place::Here(core) }
    }

    /// The stream, once the last connection was dropped.
    pub async fn stream(&mut self) -> Result<&mut S, AcceptError> {
        Ok(&mut self.core().await?.stream)
    }

    /// Waits for the host to open a connection and answers it. The connection before must have been dropped.
    pub async fn accept(&mut self) -> Result<LinkStream<S>, AcceptError> {
        let core = self.core().await?;
        let nonce = match core.requested.take() {
            Some(nonce) => nonce,
            None => next_sync(core).await?,
        };
        core.discard_output();
        core.push(&sync_ack(&nonce));
        poll_fn(|cx| core.poll_drain(cx)).await.map_err(AcceptError::Stream)?;
        let (home, back) = oneshot::channel();
        match mem::replace(&mut self.place, Place::Lent(back)) {
            Place::Here(core) => Ok(LinkStream::new(core, Side::Guest { nonce, home: Some(home) })),
            Place::Lent(_) | Place::Gone => Err(AcceptError::Gone),
        }
    }

    async fn core(&mut self) -> Result<&mut Core<S>, AcceptError> {
        if let Place::Lent(back) = &mut self.place {
            self.place = back.await.map_or(Place::Gone, Place::Here);
        }
        match &mut self.place {
            Place::Here(core) => Ok(core),
            Place::Lent(_) | Place::Gone => Err(AcceptError::Gone),
        }
    }
}

/// Reads up to the next SYNC; all else is the rest of an ended connection.
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
                // The farewell, if somebody listens. Whether it went out shows when a host is told; failures show
                // in reading as well.
                drop(core.poll_drain(cx));
            }
            received
        });
        if received.await.map_err(AcceptError::Stream)? == 0 {
            return Err(AcceptError::HungUp);
        }
    }
}
