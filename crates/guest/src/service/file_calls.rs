//! Runs file calls on blocking threads, within a limit, and passes data between these threads and the connection.

use std::sync::Arc;

use agentiso_protocol::schema::v1;
use agentiso_protocol::schema::v1::write_file_request::Part;
use agentiso_protocol::{ErrorCode, limits};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{Agent, Answer, Messages, QUEUED_MESSAGES, blocking, invalid, too_many};
use crate::files::{FileError, GuestPath, Piece};

/// Returns the next piece of an upload; `None` if it was cut off.
type NextPiece<'a> = dyn FnMut() -> Option<Piece> + 'a;

pub(super) fn file_status(error: &FileError) -> Status {
    // Its text already includes the cause.
    error.code().status(error.to_string())
}

pub(super) fn parse_path(bytes: &[u8]) -> Result<GuestPath, Status> {
    GuestPath::parse(bytes).map_err(|error| file_status(&error))
}

impl Agent {
    /// Waits until this file call may run. File calls are short, so bursts are queued and not refused.
    async fn file_call_permit(&self) -> Result<OwnedSemaphorePermit, Status> {
        let busy = || too_many("file calls");
        let _slot = self.waiting_file_calls.try_acquire().map_err(|_none| busy())?;
        let permit = Arc::clone(&self.file_calls).acquire_owned();
        let permit = tokio::time::timeout(limits::MAX_FILE_CALL_WAIT, permit).await;
        permit.map_err(|_late| busy())?.map_err(|_closed| busy())
    }

    /// Runs blocking work for a file call.
    pub(super) async fn on_file<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
    ) -> Answer<T> {
        self.ready()?;
        let permit = self.file_call_permit().await?;
        let result = blocking(move || {
            let _permit = permit;
            work()
        })
        .await?;
        result.map(Response::new).map_err(|error| file_status(&error))
    }

    /// Runs blocking work that sends one message after the other.
    pub(super) async fn stream_file<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn FnMut(T) -> bool) -> Result<(), FileError> + Send + 'static,
    ) -> Answer<Messages<T>> {
        self.ready()?;
        let permit = self.file_call_permit().await?;
        let (sender, messages) = mpsc::channel(QUEUED_MESSAGES);
        // The thread ends when the receiver is gone: its next message is refused.
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let result = work(&mut |message| sender.blocking_send(Ok(message)).is_ok());
            if let Err(error) = result {
                // It fails only if the call was cancelled.
                drop(sender.blocking_send(Err(file_status(&error))));
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(messages))))
    }

    /// Passes an upload of the host to blocking work that writes it.
    pub(super) async fn upload(
        &self,
        request: Request<Streaming<v1::WriteFileRequest>>,
        write: impl FnOnce(&v1::WriteFileHeader, &mut NextPiece<'_>) -> Result<u64, FileError> + Send + 'static,
    ) -> Answer<v1::WriteFileResponse> {
        self.ready()?;
        let permit = self.file_call_permit().await?;
        let mut parts = request.into_inner();
        let Some(Part::Header(header)) = parts.message().await?.and_then(|message| message.part) else {
            return Err(invalid("an upload must begin with a header"));
        };
        let (sender, mut pieces) = mpsc::channel(QUEUED_MESSAGES);
        // If this call is dropped, the sender is dropped too. The thread then finds no end of the upload and removes
        // its files.
        let writer = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            write(&header, &mut || pieces.blocking_recv())
        });
        while let Some(message) = parts.message().await? {
            let piece = match message.part {
                Some(Part::Data(data)) if data.len() <= limits::MAX_CHUNK_BYTES => Piece::Data(data),
                Some(Part::End(end)) => Piece::End(end.size),
                Some(Part::Data(_) | Part::Header(_)) | None => {
                    return Err(invalid("unknown kind of upload part"));
                }
            };
            let last = matches!(piece, Piece::End(_));
            // The writer ends early only with an error, which is its result.
            if sender.send(piece).await.is_err() || last {
                break;
            }
        }
        drop(sender);
        let result =
            writer.await.map_err(|_panic| ErrorCode::System.status("the agent failed during the call"))?;
        let size = result.map_err(|error| file_status(&error))?;
        Ok(Response::new(v1::WriteFileResponse { size }))
    }
}
