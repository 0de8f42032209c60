//! Reads and writes whole directories of the guest as tar archives. Their content is untrusted; see `agentiso_tree`.

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use bytes::Bytes;
use tokio::io::AsyncRead;
use tonic::Streaming;

use super::client::{AgentClient, CALL_DEADLINE};
use super::error::AgentError;
use super::files::{guest_path, next_message};
use super::upload::WriteOptions;

/// A directory that is being read. Dropping it ends the transfer.
#[derive(Debug)]
pub struct TreeReader {
    client: AgentClient,
    chunks: Streaming<v1::ReadTreeChunk>,
    /// Set by the last chunk.
    skipped: Option<u64>,
}

impl TreeReader {
    /// The next piece of the archive; `None` when it is complete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, AgentError> {
        const CALL: &str = "read_tree";
        if self.skipped.is_none() {
            let chunk = next_message(&self.client, CALL, &mut self.chunks)
                .await?
                .ok_or_else(|| AgentError::violation(CALL, "the archive is truncated"))?;
            if chunk.data.len() > limits::MAX_CHUNK_BYTES {
                return Err(AgentError::violation(CALL, "an oversized piece of an archive"));
            }
            self.skipped = chunk.end.then_some(chunk.skipped);
            if !chunk.data.is_empty() {
                return Ok(Some(chunk.data));
            }
            // Otherwise a guest could send empty chunks without end.
            if !chunk.end {
                return Err(AgentError::violation(CALL, "an empty piece of an archive"));
            }
        }
        Ok(None)
    }

    /// Pipes, sockets and devices that were left out. Zero until the last chunk has come.
    pub fn skipped(&self) -> u64 {
        self.skipped.unwrap_or(0)
    }
}

impl AgentClient {
    /// Opens a directory for reading.
    pub async fn read_tree(&self, path: impl AsRef<[u8]>) -> Result<TreeReader, AgentError> {
        let request = v1::ReadTreeRequest { path: guest_path(path)? };
        let mut stub = self.stub::<v1::ReadTreeChunk>();
        let chunks = self.answer("read_tree", CALL_DEADLINE, stub.read_tree(request)).await?;
        Ok(TreeReader { client: self.clone(), chunks, skipped: None })
    }

    /// Writes an archive as a directory. It appears whole or not at all, even if this future is dropped. The target
    /// must not exist or must be an empty directory. Returns the archive's length.
    pub async fn write_tree(
        &self,
        path: impl AsRef<[u8]>,
        archive: impl AsyncRead + Send + Unpin,
    ) -> Result<u64, AgentError> {
        let mut stub = self.stub::<v1::WriteFileResponse>();
        let begin = |parts| async move { stub.write_tree(parts).await };
        self.stream_up("write_tree", path, WriteOptions::default(), archive, begin).await
    }
}
