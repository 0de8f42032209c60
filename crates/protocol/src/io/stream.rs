//! One connection of the link as a byte stream.

use std::io;
use std::io::IoSlice;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::core::Core;
use crate::link::{Event, Nonce, close, sync_ack};

/// The payload of the frames of one connection.
///
/// The stream ends (reads return nothing, writes fail) when the peer closes or hangs up and, on the guest's side, when
/// the host opens another connection.
#[derive(Debug)]
pub struct LinkStream<S> {
    /// Present until the stream is dropped.
    core: Option<Core<S>>,
    side: Side<S>,
    ended: bool,
    closing: bool,
}

#[derive(Debug)]
pub(super) enum Side<S> {
    Host { nonce: Nonce },
    Guest { nonce: Nonce, give_back: Option<oneshot::Sender<Core<S>>> },
}

impl<S> LinkStream<S> {
    pub(super) fn new(core: Core<S>, side: Side<S>) -> Self {
        Self { core: Some(core), side, ended: false, closing: false }
    }

    /// The name of this connection: random bytes that the host drew for it.
    pub fn nonce(&self) -> &Nonce {
        match &self.side {
            Side::Host { nonce } | Side::Guest { nonce, .. } => nonce,
        }
    }
}

impl<S> Drop for LinkStream<S> {
    fn drop(&mut self) {
        if let (Some(core), Side::Guest { give_back, .. }) = (self.core.take(), &mut self.side)
            && let Some(give_back) = give_back.take()
        {
            // It fails only if the acceptor was dropped; then the stream is to be closed anyway.
            drop(give_back.send(core));
        }
    }
}

/// The effect of an event on the connection.
enum Step {
    Payload,
    Nothing,
    End,
}

fn on_event<S>(
    core: &mut Core<S>,
    side: &Side<S>,
    event: Event<'_>,
    target: &mut ReadBuf<'_>,
) -> io::Result<Step> {
    match (event, side) {
        (Event::Data(bytes), Side::Host { .. } | Side::Guest { .. }) => {
            target.put_slice(bytes);
            Ok(Step::Payload)
        }
        (Event::Close, Side::Host { .. } | Side::Guest { .. }) => Ok(Step::End),
        // The host repeated the opening because the answer was slow.
        (Event::Sync(asked), Side::Guest { nonce, .. }) if asked == *nonce => {
            core.push(&sync_ack(nonce));
            Ok(Step::Nothing)
        }
        (Event::Sync(asked), Side::Guest { .. }) => {
            core.requested = Some(asked);
            Ok(Step::End)
        }
        // The answer to a repeated opening.
        (Event::SyncAck(named), Side::Host { nonce }) if named == *nonce => Ok(Step::Nothing),
        // After an invalid frame the guest waits for the next opening.
        (Event::Lost(_) | Event::SyncAck(_), Side::Guest { .. }) => Ok(Step::End),
        (Event::Lost(violation), Side::Host { .. }) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, violation))
        }
        (Event::Sync(_) | Event::SyncAck(_), Side::Host { .. }) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the peer answered for another connection"))
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for LinkStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(core) = &mut this.core else { return Poll::Ready(Ok(())) };
        if this.ended || target.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            let mut got = false;
            // The input is moved out so that payload can be copied from it while answers are added to the core's
            // output.
            let mut received = mem::take(&mut core.input);
            let mut input: &[u8] = &received;
            while target.remaining() > 0
                && let Some(event) = core.decoder.decode(&mut input, target.remaining())
            {
                match on_event(core, &this.side, event, target) {
                    Ok(Step::Payload) => got = true,
                    Ok(Step::Nothing) => {}
                    Ok(Step::End) => {
                        this.ended = true;
                        break;
                    }
                    Err(error) => {
                        this.ended = true;
                        return Poll::Ready(Err(error));
                    }
                }
            }
            let used = received.len() - input.len();
            received.advance(used);
            core.input = received;
            if got || this.ended {
                return Poll::Ready(Ok(()));
            }
            // Answers to repeated openings are sent from here, because there may be no other write for long. Reading
            // and writing happen in one task, so a full stream wakes the right task.
            if let Poll::Ready(Err(error)) = core.poll_drain(cx) {
                this.ended = true;
                return Poll::Ready(Err(error));
            }
            if ready!(core.poll_fill(cx))? == 0 {
                this.ended = true;
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LinkStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Some(core) = this.core.as_mut().filter(|_| !this.ended && !this.closing) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if core.is_full() {
            ready!(core.poll_drain(cx))?;
        }
        let taken = core.push_data(slices);
        // Sending is tried at once. The next write or flush sends the rest.
        match core.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(core) = this.core.as_mut().filter(|_| !this.ended) else {
            return Poll::Ready(Ok(()));
        };
        ready!(core.poll_drain(cx))?;
        Pin::new(&mut core.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(core) = this.core.as_mut().filter(|_| !this.ended) else {
            return Poll::Ready(Ok(()));
        };
        if !this.closing {
            core.push(&close());
            this.closing = true;
        }
        ready!(core.poll_drain(cx))?;
        match this.side {
            Side::Host { .. } => Pin::new(&mut core.stream).poll_shutdown(cx),
            // The port stays open for the next connection.
            Side::Guest { .. } => Pin::new(&mut core.stream).poll_flush(cx),
        }
    }
}
