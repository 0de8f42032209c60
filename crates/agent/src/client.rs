//! The connection to a guest agent: retried until a deadline, greeted, and shared by clones.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentiso_protocol::bounds::Bounded;
use agentiso_protocol::io::{OpenError, open};
use agentiso_protocol::link::Nonce;
use agentiso_protocol::schema::v1;
use agentiso_protocol::schema::v1::guest_client::GuestClient;
use agentiso_protocol::{limits, version};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::Status;

use super::channel::{self, Channel, Connection};
use super::error::AgentError;
use super::system::{InitMode, Stage};

/// Pause between two attempts to connect. QEMU creates the socket before it runs the VM, so this only bridges the
/// moment in which the process starts.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// An agent that has opened the link is up. A greeting that takes longer than this is repeated on a new link.
const HELLO_DEADLINE: Duration = Duration::from_secs(20);

/// For calls that do a bounded amount of work, with room for an emulated guest on a busy host.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// The number of features, and the bytes of each text, that are kept of an agent's greeting.
const MAX_FEATURES: usize = 64;
const MAX_TEXT_BYTES: usize = 128;

/// The agent's greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Protocol generation spoken on this connection.
    pub protocol: u32,
    /// Version of the agent.
    pub agent_version: String,
    /// The agent's features beyond the first version.
    pub features: Vec<String>,
    /// The kernel's boot id: unchanged after a restore, new after a boot.
    pub boot_id: String,
    /// Whether the disk is attached.
    pub stage: Stage,
    /// The program that runs as process 1.
    pub init_mode: InitMode,
    /// Differs between two runs of the agent on one boot.
    pub agent_start_ns: u64,
}

/// A connection to one guest agent.
#[derive(Clone)]
pub struct AgentClient {
    shared: Arc<Shared>,
    stub: GuestClient<Channel>,
}

struct Shared {
    connection: Connection,
    hello: Hello,
}

impl fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentClient").field("hello", &self.shared.hello).finish_non_exhaustive()
    }
}

impl AgentClient {
    /// Connects to the agent behind a unix socket. Retries until the deadline while the socket does not exist, the
    /// guest still boots or its agent restarts.
    pub async fn connect(path: impl AsRef<Path>, deadline: Instant) -> Result<Self, AgentError> {
        let path = path.as_ref();
        let mut reason = "no connection was attempted".to_owned();
        loop {
            let attempt = async {
                let stream = UnixStream::connect(path).await.map_err(|source| at_connect(path, source))?;
                Self::over(stream, deadline).await.map_err(|error| at_handshake(path, error))
            };
            match timeout_at(deadline, attempt).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(Attempt::Final(error))) => return Err(error),
                Ok(Err(Attempt::Again(why))) => reason = why,
                Err(_elapsed) => return Err(AgentError::NotReady { path: path.to_owned(), reason }),
            }
            if timeout_at(deadline, sleep(RETRY_AFTER)).await.is_err() {
                return Err(AgentError::NotReady { path: path.to_owned(), reason });
            }
        }
    }

    /// Makes one attempt to connect over a stream that is already open.
    pub async fn over(stream: UnixStream, deadline: Instant) -> Result<Self, HandshakeError> {
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|error| HandshakeError::Nonce(io::Error::other(error)))?;
        let link = open(stream, nonce, deadline).await?;
        let (channel, connection) = channel::start(link).await.map_err(HandshakeError::Http2)?;
        let origin = http::Uri::from_static("http://guest");
        let mut stub = GuestClient::with_origin(channel, origin)
            .max_decoding_message_size(v1::HelloResponse::MAX_BYTES)
            .max_encoding_message_size(limits::MAX_MESSAGE_BYTES);
        let request = v1::HelloRequest {
            host_version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: version::CURRENT,
        };
        let answer = timeout(HELLO_DEADLINE, stub.hello(request))
            .await
            .map_err(|_elapsed| {
                HandshakeError::Hello(AgentError::TimedOut { call: "hello", after: HELLO_DEADLINE })
            })?
            .map_err(|status| HandshakeError::Hello(AgentError::from_status("hello", &status)))?;
        let hello = read_hello(answer.into_inner()).map_err(HandshakeError::Hello)?;
        Ok(Self { shared: Arc::new(Shared { connection, hello }), stub })
    }

    /// The agent's greeting on this connection.
    pub fn hello(&self) -> &Hello {
        &self.shared.hello
    }

    /// Whether the agent has a feature. An agent that was frozen in a snapshot may lack newer ones.
    pub(super) fn has_feature(&self, feature: &str) -> bool {
        self.shared.hello.features.iter().any(|found| found == feature)
    }

    /// Resolves when the connection has ended, for any reason.
    pub async fn closed(&self) {
        self.shared.connection.closed().await;
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.connection.is_closed()
    }

    /// The generated client, bounded for this kind of answer; cheap to clone, one clone per call. A longer answer is
    /// refused by its header, before memory is allocated for it.
    pub(super) fn stub<A: Bounded>(&self) -> GuestClient<Channel> {
        self.stub.clone().max_decoding_message_size(A::MAX_BYTES)
    }

    /// Turns a failed call into an error, and reports a lost connection as such.
    pub(super) fn failure(&self, call: &'static str, status: &Status) -> AgentError {
        let error = AgentError::from_status(call, status);
        if matches!(error, AgentError::Violation { .. }) && self.is_closed() {
            AgentError::Disconnected { call }
        } else {
            error
        }
    }

    /// Waits for an answer until a deadline.
    pub(super) async fn answer<T>(
        &self,
        call: &'static str,
        after: Duration,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, AgentError> {
        match timeout(after, answer).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.failure(call, &status)),
            Err(_elapsed) => Err(AgentError::TimedOut { call, after }),
        }
    }
}

/// The reason why a handshake on an open stream failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The kernel gave no random numbers.
    #[error("no random numbers for the connection")]
    Nonce(#[source] io::Error),
    /// The guest did not open the link.
    #[error(transparent)]
    Link(#[from] OpenError),
    /// HTTP/2 did not begin.
    #[error("HTTP/2 could not be started")]
    Http2(#[source] hyper::Error),
    /// The agent was not greeted.
    #[error(transparent)]
    Hello(AgentError),
}

enum Attempt {
    Final(AgentError),
    Again(String),
}

fn at_connect(path: &Path, source: io::Error) -> Attempt {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these kinds are transient")]
    match source.kind() {
        io::ErrorKind::NotFound => Attempt::Again("its socket does not exist".into()),
        io::ErrorKind::ConnectionRefused => Attempt::Again("nothing listens on its socket".into()),
        io::ErrorKind::WouldBlock => Attempt::Again("its socket is busy".into()),
        _ => Attempt::Final(AgentError::Socket { path: PathBuf::from(path), source }),
    }
}

fn at_handshake(path: &Path, error: HandshakeError) -> Attempt {
    match error {
        HandshakeError::Hello(
            error @ (AgentError::ProtocolMismatch { .. }
            | AgentError::Guest { .. }
            | AgentError::Unsupported { .. }
            | AgentError::Violation { .. }),
        ) => Attempt::Final(error),
        HandshakeError::Nonce(source) => Attempt::Final(AgentError::Socket { path: path.to_owned(), source }),
        HandshakeError::Link(_) | HandshakeError::Http2(_) | HandshakeError::Hello(_) => {
            Attempt::Again(error.to_string())
        }
    }
}

fn read_hello(answer: v1::HelloResponse) -> Result<Hello, AgentError> {
    if version::settle(answer.protocol) != Some(answer.protocol) {
        return Err(AgentError::ProtocolMismatch {
            guest: answer.protocol,
            oldest: version::OLDEST,
            newest: version::CURRENT,
        });
    }
    let (stage, init_mode) = (answer.stage(), answer.init_mode());
    Ok(Hello {
        protocol: answer.protocol,
        agent_version: short(answer.agent_version),
        features: answer.features.into_iter().take(MAX_FEATURES).map(short).collect(),
        boot_id: short(answer.boot_id),
        stage: Stage::from_wire(stage)?,
        init_mode: InitMode::from_wire(init_mode)?,
        agent_start_ns: answer.agent_start_ns,
    })
}

fn short(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use agentiso_protocol::schema::v1;

    use super::{AgentError, read_hello};

    fn answer() -> v1::HelloResponse {
        v1::HelloResponse {
            protocol: 1,
            stage: v1::Stage::Bare.into(),
            init_mode: v1::InitMode::Fast.into(),
            ..v1::HelloResponse::default()
        }
    }

    #[test]
    fn agent_with_unknown_protocol_is_refused() {
        assert!(read_hello(answer()).is_ok());
        for protocol in [0, 2, u32::MAX] {
            let result = read_hello(v1::HelloResponse { protocol, ..answer() });
            assert!(matches!(result, Err(AgentError::ProtocolMismatch { guest, .. }) if guest == protocol));
        }
    }

    #[test]
    fn oversized_hello_fields_are_cut() {
        let features = vec!["f".repeat(10_000); 10_000];
        let hello = read_hello(v1::HelloResponse { features, boot_id: "ä".repeat(9999), ..answer() });
        let hello = hello.expect("long, but an answer");
        assert_eq!((hello.features.len(), hello.features[0].len(), hello.boot_id.len()), (64, 128, 128));
    }

    #[test]
    fn unknown_agent_stage_is_a_violation() {
        let result = read_hello(v1::HelloResponse { stage: 77, ..answer() });
        assert!(matches!(result, Err(AgentError::Violation { .. })));
    }
}
