//! A port of the guest's loopback whose connections are served here.

use std::time::Duration;

use agentiso_protocol::schema::v1;
use agentiso_protocol::{limits, version};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Streaming;

use super::client::{AgentClient, CALL_DEADLINE};
use super::error::AgentError;

const LISTEN: &str = "listen";
const CARRY: &str = "carry";

/// Each way, between whoever serves a connection and the guest.
const BUFFER_BYTES: usize = 64 * 1024;

/// Pieces on their way into HTTP/2, which holds back when the guest is slow.
const QUEUED_PIECES: usize = 2;

/// A port that the guest listens at. Dropping it closes the port.
#[derive(Debug)]
pub struct LocalListener {
    client: AgentClient,
    accepted: Streaming<v1::Accepted>,
}

/// A connection of a program in the guest. Dropping it before its end cuts the program off.
#[derive(Debug)]
pub struct LocalConnection {
    /// What the program sends and is sent.
    pub stream: DuplexStream,
    /// How long the guest had been running when it was opened.
    pub uptime: Duration,
    carried: Carried,
}

/// The way of a connection through the guest.
#[derive(Debug)]
pub struct Carried(AbortOnDropHandle<Result<(), AgentError>>);

impl Carried {
    /// Waits until the program has closed the connection, after what was sent to it was ended. An error if it went
    /// without reading all of it.
    pub async fn to_the_end(self) -> Result<(), AgentError> {
        self.0.await.unwrap_or(Err(AgentError::Disconnected { call: CARRY }))
    }
}

impl LocalConnection {
    /// What the program sends and is sent, and how to learn that it has it.
    pub fn into_parts(self) -> (DuplexStream, Carried) {
        (self.stream, self.carried)
    }
}

impl LocalListener {
    /// The next connection; an error when the guest listens no more.
    pub async fn accept(&mut self) -> Result<LocalConnection, AgentError> {
        let accepted =
            self.accepted.message().await.map_err(|status| self.client.failure(LISTEN, &status))?;
        let accepted = accepted.ok_or(AgentError::Disconnected { call: LISTEN })?;
        let (stream, theirs) = duplex(BUFFER_BYTES);
        let client = self.client.clone();
        let carrying = tokio::spawn(async move { client.carry(accepted.connection, theirs).await });
        Ok(LocalConnection {
            stream,
            uptime: Duration::from_secs(accepted.uptime_secs),
            carried: Carried(AbortOnDropHandle::new(carrying)),
        })
    }
}

impl AgentClient {
    /// Has the guest listen at a port of its loopback. An agent that was frozen before there was this call cannot.
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
            self.hear(chunks, write).await
        };
        let up = to_program(connection, read, parts);
        tokio::pin!(up, down);
        tokio::select! {
            // The guest has the last word: it knows whether the program has heard ours.
            biased;
            ended = &mut down => ended,
            () = &mut up => down.await,
        }
    }

    /// What the program sends, until the guest ends it.
    async fn hear(
        &self,
        mut chunks: Streaming<v1::CarryChunk>,
        mut write: WriteHalf<DuplexStream>,
    ) -> Result<(), AgentError> {
        while let Some(chunk) = chunks.message().await.map_err(|status| self.failure(CARRY, &status))? {
            if chunk.data.len() > limits::MAX_CHUNK_BYTES {
                return Err(AgentError::violation(CARRY, "an oversized piece of a connection"));
            }
            // Whoever serves it may have had enough, and still waits for the end.
            let heard = write.write_all(&chunk.data).await;
            if chunk.end && heard.is_ok() {
                let _nobody_reads_on = write.shutdown().await;
            }
        }
        Ok(())
    }
}

/// Sends what is written to the connection, and that there is no more.
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
