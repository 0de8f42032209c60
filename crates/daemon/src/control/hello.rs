//! The greeting on a connection: the first line in each direction.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::mcp::McpOptions;
use crate::run_dir;

/// The version of the socket's protocol.
pub(crate) const GENERATION: u32 = 1;

/// Maximum bytes of a hello. It has some 100 bytes; a list of tools makes it longer.
const MAX_HELLO_BYTES: usize = 16 * 1024;

/// A client that connects and sends nothing is disconnected after this time.
pub(crate) const HELLO_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Mcp,
    Control,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub agentiso: u32,
    pub kind: Kind,
    pub version: String,
    #[serde(flatten)]
    pub mcp: McpOptions,
}

impl Hello {
    pub fn control() -> Self {
        Self {
            agentiso: GENERATION,
            kind: Kind::Control,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mcp: McpOptions::default(),
        }
    }

    pub fn mcp(options: McpOptions) -> Self {
        Self { kind: Kind::Mcp, mcp: options, ..Self::control() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    #[serde(default)]
    pub agentiso: u32,
    pub ok: bool,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub pid: u32,
    /// The state file that the daemon serves. Versions before this field do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Welcome {
    pub(crate) fn accept(state_file: &Path) -> Self {
        Self { ok: true, state_file: Some(run_dir::identity(state_file)), error: None, ..Self::refuse("") }
    }

    pub(crate) fn refuse(error: impl Into<String>) -> Self {
        Self {
            agentiso: GENERATION,
            ok: false,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            state_file: None,
            error: Some(error.into()),
        }
    }
}

#[derive(Debug, Error)]
pub enum HelloError {
    #[error("the connection broke during the greeting: {0}")]
    Io(#[from] io::Error),
    #[error("the connection was closed before the greeting")]
    Ended,
    #[error("the greeting is longer than {MAX_HELLO_BYTES} bytes")]
    TooLong,
    #[error("malformed greeting: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("no greeting within {} s", HELLO_DEADLINE.as_secs())]
    TimedOut,
    #[error(
        "the other side speaks generation {theirs} of the protocol, this program generation {GENERATION}"
    )]
    Generation { theirs: u32 },
}

/// Reads one line and not a byte more: the bytes after it belong to the next protocol on the stream.
pub async fn read_line(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, HelloError> {
    let mut line = Vec::new();
    loop {
        let byte = match stream.read_u8().await {
            Ok(byte) => byte,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(HelloError::Ended),
            Err(error) => return Err(error.into()),
        };
        if byte == b'\n' {
            return Ok(line);
        }
        if line.len() == MAX_HELLO_BYTES {
            return Err(HelloError::TooLong);
        }
        line.push(byte);
    }
}

/// Reads the hello of a client.
pub async fn read_hello(
    stream: &mut (impl AsyncRead + Unpin),
    deadline: Duration,
) -> Result<Hello, HelloError> {
    /// Only the generation, because a later generation may differ in all other fields.
    #[derive(Deserialize)]
    struct Generation {
        agentiso: u32,
    }
    let line =
        tokio::time::timeout(deadline, read_line(stream)).await.map_err(|_| HelloError::TimedOut)??;
    let Generation { agentiso } = serde_json::from_slice(&line)?;
    if agentiso != GENERATION {
        return Err(HelloError::Generation { theirs: agentiso });
    }
    Ok(serde_json::from_slice(&line)?)
}

pub(crate) async fn write_line(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bytes_after_hello_stay_in_the_stream() {
        let text = b"{\"agentiso\":1,\"kind\":\"mcp\",\"version\":\"x\",\"tools\":\"core\"}\n{\"jsonrpc\"";
        let mut stream = &text[..];
        let hello = read_hello(&mut stream, HELLO_DEADLINE).await.unwrap();
        assert_eq!((hello.kind, hello.mcp.tools.as_deref()), (Kind::Mcp, Some("core")));
        assert_eq!(stream, b"{\"jsonrpc\"");
    }

    #[tokio::test]
    async fn invalid_hellos_are_refused() {
        let long = vec![b'x'; MAX_HELLO_BYTES + 1];
        assert!(matches!(read_hello(&mut &long[..], HELLO_DEADLINE).await, Err(HelloError::TooLong)));
        assert!(matches!(read_hello(&mut &b"{}\n"[..], HELLO_DEADLINE).await, Err(HelloError::Malformed(_))));
        assert!(matches!(read_hello(&mut &b"{\"agent"[..], HELLO_DEADLINE).await, Err(HelloError::Ended)));
        let newer = b"{\"agentiso\":2,\"kind\":\"telepathy\"}\n";
        assert!(matches!(
            read_hello(&mut &newer[..], HELLO_DEADLINE).await,
            Err(HelloError::Generation { theirs: 2 })
        ));
    }

    #[tokio::test]
    async fn hello_times_out_on_silence() {
        let (mut ours, _theirs) = tokio::io::duplex(64);
        assert!(matches!(read_hello(&mut ours, Duration::from_millis(20)).await, Err(HelloError::TimedOut)));
    }
}
