//! Errors of the connection between the host and a guest agent.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use agentiso_protocol::ErrorCode;
use agentiso_protocol::error::clip;
use agentiso_vm::AgentFailure;
use tonic::{Code, Status};

/// A failed call, or a failed attempt to connect.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent did not answer on its socket before the deadline.
    #[error("the guest agent at {} did not answer in time ({reason})", path.display())]
    NotReady {
        /// The socket of the agent's channel.
        path: PathBuf,
        /// The problem at the last attempt.
        reason: String,
    },
    /// The socket cannot be used at all.
    #[error("the guest agent's socket {} cannot be opened", path.display())]
    Socket {
        /// The socket of the agent's channel.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The agent speaks no protocol generation that this host speaks.
    #[error("the guest agent speaks protocol {guest}, but this agentiso supports {oldest} to {newest}")]
    ProtocolMismatch {
        /// The generation that the agent offers.
        guest: u32,
        /// Oldest generation spoken here.
        oldest: u32,
        /// Newest generation spoken here.
        newest: u32,
    },
    /// The agent refused the call with a reason.
    #[error("{message}")]
    Guest {
        /// The reason, stable across versions.
        code: ErrorCode,
        /// The agent's message, at most [`agentiso_protocol::limits::MAX_ERROR_TEXT_BYTES`] bytes.
        message: String,
    },
    /// The connection broke before the call was answered.
    #[error("the connection to the guest agent broke during {call}")]
    Disconnected {
        /// The call.
        call: &'static str,
    },
    /// The agent did not answer the call in time.
    #[error("the guest agent did not finish {call} within {} s", after.as_secs())]
    TimedOut {
        /// The call.
        call: &'static str,
        /// The time that was waited.
        after: Duration,
    },
    /// The agent does not know the call.
    #[error("the guest agent does not support {call}")]
    Unsupported {
        /// The call.
        call: &'static str,
    },
    /// The agent's answer contradicts the protocol.
    #[error("invalid answer from the guest agent to {call}: {problem}")]
    Violation {
        /// The call.
        call: &'static str,
        /// The contradiction in the answer.
        problem: String,
    },
    /// The request cannot be sent because it exceeds a limit of the protocol.
    #[error("{what} is {actual} bytes long, the limit is {limit}")]
    RequestTooLarge {
        /// The part of the request that is too large.
        what: &'static str,
        /// Its size.
        actual: usize,
        /// The largest allowed size.
        limit: usize,
    },
    /// The content for the guest could not be read on the host.
    #[error("the data for the guest could not be read")]
    Source(#[source] io::Error),
}

impl AgentError {
    /// The agent's reason, if it gave one.
    pub fn code(&self) -> Option<ErrorCode> {
        if let Self::Guest { code, .. } = self { Some(*code) } else { None }
    }

    /// Whether the file or directory of the call does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(ErrorCode::NotFound)
    }

    pub(super) fn violation(call: &'static str, problem: impl Into<String>) -> Self {
        Self::Violation { call, problem: problem.into() }
    }

    pub(super) fn from_status(call: &'static str, status: &Status) -> Self {
        if let Some((code, text)) = ErrorCode::split(status.message()) {
            return Self::Guest { code, message: text.to_owned() };
        }
        // Errors of the transport have a source; errors that the guest sent have none.
        let of_transport = status.source().is_some();
        #[expect(
            clippy::wildcard_enum_match_arm,
            reason = "all other codes are answers that no agent of ours gives"
        )]
        match status.code() {
            Code::Unimplemented => Self::Unsupported { call },
            Code::Unavailable | Code::Cancelled => Self::Disconnected { call },
            _ if of_transport => Self::Disconnected { call },
            code => Self::violation(call, format!("{code:?}: {}", clip(status.message()))),
        }
    }
}

/// The failure of a call as the daemon and its clients tell it apart.
impl From<AgentError> for AgentFailure {
    fn from(error: AgentError) -> Self {
        let text = error.to_string();
        match error {
            AgentError::Guest { code, message } => Self::Refused { code, message },
            AgentError::TimedOut { after, .. } => Self::Silent { seconds: after.as_secs() },
            AgentError::RequestTooLarge { .. } => Self::Refused { code: ErrorCode::TooLarge, message: text },
            AgentError::Unsupported { call } => Self::Unsupported { call },
            AgentError::Violation { .. } | AgentError::ProtocolMismatch { .. } => {
                Self::Refused { code: ErrorCode::System, message: text }
            }
            AgentError::NotReady { .. }
            | AgentError::Socket { .. }
            | AgentError::Disconnected { .. }
            | AgentError::Source(_) => Self::Broken { reason: text },
        }
    }
}
