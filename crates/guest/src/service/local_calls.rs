//! Calls about the local port for programs in the guest.

use std::sync::Arc;

use agentiso_protocol::ErrorCode;
use agentiso_protocol::schema::v1;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming};

use super::{Agent, Answer, Messages, QUEUED_MESSAGES, invalid, permit};
use crate::local;

impl Agent {
    pub(super) async fn listened(
        &self,
        request: Request<v1::ListenRequest>,
    ) -> Answer<Messages<v1::Accepted>> {
        self.ready()?;
        let permit = permit(&self.listening, "listeners")?;
        let port = u16::try_from(request.into_inner().port).map_err(invalid)?;
        let listener = local::bind(port)
            .await
            .map_err(|error| ErrorCode::Busy.status(format!("cannot listen on 127.0.0.1:{port}: {error}")))?;
        let waiting = Arc::clone(&self.local);
        Ok(Response::new(owned(move |sink| async move {
            let _permit = permit;
            local::accept(listener, waiting, sink).await;
        })))
    }

    pub(super) async fn carried(
        &self,
        request: Request<Streaming<v1::CarryRequest>>,
    ) -> Answer<Messages<v1::CarryChunk>> {
        let mut parts = request.into_inner();
        let first = parts.message().await?.ok_or_else(|| invalid("the connection id is missing"))?;
        let connection = self.local.fetch(first.connection);
        let connection =
            connection.ok_or_else(|| ErrorCode::NotFound.status("there is no such connection"))?;
        Ok(Response::new(owned(move |sink| async move {
            if let Err(status) = local::carry(connection, parts, &sink).await {
                // It fails only if the call was cancelled.
                drop(sink.send(Err(status)).await);
            }
        })))
    }
}

/// The stream of messages that a task sends. The stream owns the task, so it ends with the call.
fn owned<T: Send + 'static, F: Future<Output = ()> + Send + 'static>(
    work: impl FnOnce(mpsc::Sender<Result<T, Status>>) -> F,
) -> Messages<T> {
    let (sink, messages) = mpsc::channel(QUEUED_MESSAGES);
    let task = AbortOnDropHandle::new(tokio::spawn(work(sink)));
    Box::pin(ReceiverStream::new(messages).map(move |message| {
        let _owned = &task;
        message
    }))
}
