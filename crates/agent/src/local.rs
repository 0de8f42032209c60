//! A port on the guest's loopback whose connections are served on the host.

use std::time::Duration;

use agentiso_protocol::schema::v1;
use agentiso_protocol::{limits, version};
use agentiso_vm::{AgentFailure, LocalConnection};
use bytes::BytesMut;
use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Streaming;

use super::client::{AgentClient, CALL_DEADLINE};
use super::error::AgentError;

const LISTEN: &str = "listen";
const CARRY: &str = "carry";

/// The buffer in each direction between the server of a connection and the guest.
const BUFFER_BYTES: usize = 64 * 1024;

/// Pieces on their way into HTTP/2, which holds back when the guest is slow.
const QUEUED_PIECES: usize = 2;

/// A port that the guest listens at. Dropping it closes the port.
#[derive(Debug)]
pub struct LocalListener {
    client: AgentClient,
    accepted: Streaming<v1::Accepted>,
}

impl LocalListener {
    /// Waits for the next connection. Fails when the guest has stopped listening.
    pub async fn accept(&mut self) -> Result<LocalConnection, AgentError> {
        let accepted =
            self.accepted.message().await.map_err(|status| self.client.failure(LISTEN, &status))?;
        let accepted = accepted.ok_or(AgentError::Disconnected { call: LISTEN })?;
        let (stream, theirs) = duplex(BUFFER_BYTES);
        let client = self.client.clone();
        let carrying = tokio::spawn(async move { client.carry(accepted.connection, theirs).await });
        let carrying = AbortOnDropHandle::new(carrying);
        let delivered = async move {
            let carried = carrying.await.unwrap_or(Err(AgentError::Disconnected { call: CARRY }));
            carried.map_err(AgentFailure::from)
        };
        Ok(LocalConnection {
            stream,
            uptime: Duration::from_secs(accepted.uptime_secs),
            delivered: delivered.boxed(),
        })
    }
}

impl AgentClient {
    /// Makes the guest listen at a port of its loopback. Agents in snapshots from before this call existed do not
    /// support it.
    pub async fn listen(&self, port: u16) -> Result<LocalListener, AgentError> {
        if !self.has_feature(version::LOCAL_LISTEN) {
            return Err(AgentError::Unsupported { call: LISTEN });
        }
        let mut stub = self.stub::<v1::Accepted>();
        let request = v1::ListenRequest { port: port.into() };
        let accepted = self.answer(LISTEN, CALL_DEADLINE, stub.listen(request)).await?;
        Ok(LocalListener { client: self.clone(), accepted })
    }

    async fn carry(&self, connection: u64, ours: DuplexStream) -> Result<(), AgentError> {
        let (parts, queue) = mpsc::channel(QUEUED_PIECES);
        let (read, write) = split(ours);
        let mut stub = self.stub::<v1::CarryChunk>();
        let down = async {
            let answer = stub.carry(ReceiverStream::new(queue));
            let chunks = self.answer(CARRY, CALL_DEADLINE, answer).await?;
            self.receive_from_program(chunks, write).await
        };
        let up = to_program(connection, read, parts);
        tokio::pin!(up, down);
        tokio::select! {
            // The guest's answer decides: only the guest knows whether the program has read everything.
            biased;
            ended = &mut down => ended,
            () = &mut up => down.await,
        }
    }

    /// Passes on the bytes of the program until the guest ends them.
    async fn receive_from_program(
        &self,
        mut chunks: Streaming<v1::CarryChunk>,
        mut write: WriteHalf<DuplexStream>,
    ) -> Result<(), AgentError> {
        while let Some(chunk) = chunks.message().await.map_err(|status| self.failure(CARRY, &status))? {
            if chunk.data.len() > limits::MAX_CHUNK_BYTES {
                return Err(AgentError::violation(CARRY, "an oversized piece of data"));
            }
            // The server may have stopped reading; the end of the stream is still awaited.
            let heard = write.write_all(&chunk.data).await;
            if chunk.end && heard.is_ok() {
                let _nobody_reads_on = write.shutdown().await;
            }
        }
        Ok(())
    }
}

/// Sends the bytes that are written to the connection, and then their end.
async fn to_program(
    connection: u64,
    mut read: ReadHalf<DuplexStream>,
    parts: mpsc::Sender<v1::CarryRequest>,
) {
    let first = v1::CarryRequest { connection, ..v1::CarryRequest::default() };
    let mut sent = parts.send(first).await.is_ok();
    while sent {
        let mut data = BytesMut::with_capacity(BUFFER_BYTES);
        let end = !matches!(read.read_buf(&mut data).await, Ok(length) if length > 0);
        let data = data.freeze();
        sent = parts.send(v1::CarryRequest { connection: 0, data, end }).await.is_ok() && !end;
    }
}
