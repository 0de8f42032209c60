//! Writing files into the guest.

use std::time::Duration;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use agentiso_protocol::schema::v1::write_file_request::Part;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::client::AgentClient;
use super::error::AgentError;
use super::files::{STALL_DEADLINE, guest_path};

/// Chunks on their way into HTTP/2, which holds back when the guest is slow.
const QUEUED_CHUNKS: usize = 2;

/// The throughput of the slowest guest. Content from memory is handed over at once, so the wait for its answer depends
/// on it.
const MIN_BYTES_PER_SECOND: u64 = 256 * 1024;

const WRITE_FILE: &str = "write_file";

/// A guest's answer to an upload.
type Written = Result<tonic::Response<v1::WriteFileResponse>, tonic::Status>;

/// Options for writing a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Permission bits; absent: those of the file that is replaced, else 0644.
    pub mode: Option<u32>,
    /// Whether missing directories above it are made.
    pub create_parents: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { mode: None, create_parents: true }
    }
}

impl AgentClient {
    /// Writes a file. It appears whole or not at all, even if this future is dropped. Returns its size.
    pub async fn write_file(
        &self,
        path: impl AsRef<[u8]>,
        options: WriteOptions,
        source: impl AsyncRead + Send + Unpin,
    ) -> Result<u64, AgentError> {
        let mut stub = self.stub::<v1::WriteFileResponse>();
        let begin = |parts| async move { stub.write_file(parts).await };
        self.stream_up(WRITE_FILE, path, options, source, begin).await
    }

    /// Streams the content of a source to a call that takes it in parts.
    pub(super) async fn stream_up<F: Future<Output = Written> + Send>(
        &self,
        call: &'static str,
        path: impl AsRef<[u8]>,
        options: WriteOptions,
        mut source: impl AsyncRead + Send + Unpin,
        begin: impl FnOnce(ReceiverStream<v1::WriteFileRequest>) -> F,
    ) -> Result<u64, AgentError> {
        let header = header(path, options)?;
        let (parts, queue) = mpsc::channel(QUEUED_CHUNKS);
        let upload = async move {
            send(call, &parts, Part::Header(header)).await?;
            let mut size = 0;
            loop {
                let mut chunk = BytesMut::with_capacity(limits::CHUNK_BYTES);
                // Filled as far as possible, because small messages cost as much as large ones.
                while chunk.len() < limits::CHUNK_BYTES
                    && source.read_buf(&mut chunk).await.map_err(AgentError::Source)? > 0
                {}
                if chunk.is_empty() {
                    break;
                }
                size += chunk.len() as u64;
                send(call, &parts, Part::Data(chunk.freeze())).await?;
            }
            send(call, &parts, Part::End(v1::WriteFileEnd { size })).await?;
            Ok(size)
        };
        self.run_upload(call, upload, begin(ReceiverStream::new(queue))).await
    }

    /// Writes a file from memory, in one go when it is small.
    pub async fn write_bytes(
        &self,
        path: impl AsRef<[u8]>,
        options: WriteOptions,
        content: impl Into<Bytes>,
    ) -> Result<u64, AgentError> {
        let header = header(path, options)?;
        let mut content = content.into();
        let size = content.len() as u64;
        let mut parts = vec![Part::Header(header)];
        while !content.is_empty() {
            parts.push(Part::Data(content.split_to(content.len().min(limits::CHUNK_BYTES))));
        }
        parts.push(Part::End(v1::WriteFileEnd { size }));
        let parts = parts.into_iter().map(|part| v1::WriteFileRequest { part: Some(part) });
        let mut stub = self.stub::<v1::WriteFileResponse>();
        self.run_upload(WRITE_FILE, async { Ok(size) }, stub.write_file(tokio_stream::iter(parts))).await
    }

    /// Runs the call and its feed at the same time, and compares the bytes sent with the bytes that arrived.
    async fn run_upload(
        &self,
        call: &'static str,
        feed: impl Future<Output = Result<u64, AgentError>>,
        written: impl Future<Output = Written>,
    ) -> Result<u64, AgentError> {
        tokio::pin!(feed, written);
        let sent = tokio::select! {
            // An early answer is a refusal and says more than the broken queue that it leaves behind.
            biased;
            answer = &mut written => {
                return match answer {
                    // Content from memory is fed as soon as the call begins, so the answer may come before the feed has
                    // ended.
                    Ok(response) => complete(call, feed.await?, response.into_inner().size),
                    Err(status) => Err(self.failure(call, &status)),
                };
            }
            sent = &mut feed => match sent {
                Ok(sent) => sent,
                // The queue broke because the call ended; the call's answer states the reason.
                Err(AgentError::Disconnected { .. }) => 0,
                Err(error) => return Err(error),
            },
        };
        let after = STALL_DEADLINE + Duration::from_secs(sent / MIN_BYTES_PER_SECOND);
        match timeout(after, written).await {
            Ok(Ok(response)) => complete(call, sent, response.into_inner().size),
            Ok(Err(status)) => Err(self.failure(call, &status)),
            Err(_elapsed) => Err(AgentError::TimedOut { call, after }),
        }
    }
}

fn header(path: impl AsRef<[u8]>, options: WriteOptions) -> Result<v1::WriteFileHeader, AgentError> {
    Ok(v1::WriteFileHeader {
        path: guest_path(path)?,
        mode: options.mode,
        create_parents: options.create_parents,
    })
}

fn complete(call: &'static str, sent: u64, written: u64) -> Result<u64, AgentError> {
    if sent == written {
        Ok(written)
    } else {
        Err(AgentError::violation(call, format!("{sent} bytes were sent, {written} written")))
    }
}

async fn send(
    call: &'static str,
    parts: &mpsc::Sender<v1::WriteFileRequest>,
    part: Part,
) -> Result<(), AgentError> {
    match timeout(STALL_DEADLINE, parts.send(v1::WriteFileRequest { part: Some(part) })).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_closed)) => Err(AgentError::Disconnected { call }),
        Err(_elapsed) => Err(AgentError::TimedOut { call, after: STALL_DEADLINE }),
    }
}
