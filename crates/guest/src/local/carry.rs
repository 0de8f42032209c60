//! Carries one connection between a program in the guest and the host.

use std::io;
use std::time::Duration;

use agentiso_protocol::schema::v1;
use agentiso_protocol::{ErrorCode, limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use super::Connection;

/// Bytes per read: requests are short.
const READ_BYTES: usize = 16 * 1024;

/// The time that a program gets to close its connection after the host has sent everything.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

type Sink = mpsc::Sender<Result<v1::CarryChunk, Status>>;

/// Carries a connection to its end. Fails if the program went away before it read everything.
pub(crate) async fn carry(
    connection: Connection,
    parts: Streaming<v1::CarryRequest>,
    sink: &Sink,
) -> Result<(), Status> {
    let Connection { mut stream, _slot, .. } = connection;
    let (read, write) = stream.split();
    {
        let (up, down) = (to_host(read, sink), to_program(write, parts));
        tokio::pin!(up, down);
        let mut heard = false;
        loop {
            tokio::select! {
                // The host's last data ends the connection, even if the program still sends.
                biased;
                answered = &mut down => break answered?,
                sent = &mut up, if !heard => {
                    sent?;
                    heard = true;
                }
            }
        }
        // A program that closes in order has read everything; if it was killed, its connection is reset. If it does
        // neither in time, everything is at least in its receive buffer.
        if !heard && let Ok(closed) = timeout(CLOSE_DEADLINE, up).await {
            closed?;
        }
    }
    match stream.take_error() {
        Ok(None) => Ok(()),
        Ok(Some(error)) | Err(error) => Err(gone(&error)),
    }
}

async fn to_host(mut read: ReadHalf<'_>, sink: &Sink) -> Result<(), Status> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = read.read(&mut buffer).await.map_err(|error| gone(&error))?;
        let data = buffer[..length].to_vec().into();
        let host_is_gone = sink.send(Ok(v1::CarryChunk { data, end: length == 0 })).await.is_err();
        if length == 0 || host_is_gone {
            return Ok(());
        }
    }
}

async fn to_program(mut write: WriteHalf<'_>, mut parts: Streaming<v1::CarryRequest>) -> Result<(), Status> {
    while let Some(part) = parts.message().await? {
        if part.data.len() > limits::MAX_CHUNK_BYTES {
            return Err(ErrorCode::Invalid.status("the data chunk is too long"));
        }
        write.write_all(&part.data).await.map_err(|error| gone(&error))?;
        if part.end {
            return write.shutdown().await.map_err(|error| gone(&error));
        }
    }
    Err(ErrorCode::Invalid.status("the host closed the connection too early"))
}

fn gone(error: &io::Error) -> Status {
    ErrorCode::System.status(format!("the program closed its connection: {error}"))
}
