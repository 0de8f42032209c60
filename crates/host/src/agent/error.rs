//! What can go wrong between the host and a guest agent.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use agentiso_protocol::ErrorCode;
use agentiso_protocol::error::clip;
use tonic::{Code, Status};

/// A call that failed, or a connection that did not come about.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent did not answer on its socket before the deadline.
    #[error("the guest agent at {} did not answer in time ({reason})", path.display())]
    NotReady {
        /// The socket of the agent's channel.
        path: PathBuf,
        /// What stood in the way at the last attempt.
        reason: String,
    },
    /// The socket cannot be used at all.
    #[error("the guest agent's socket {} cannot be opened", path.display())]
    Socket {
        /// The socket of the agent's channel.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The agent speaks no protocol generation that this host speaks.
    #[error("the guest agent speaks protocol {guest}, this host speaks {oldest} to {newest}")]
    ProtocolMismatch {
        /// What the agent offers.
        guest: u32,
        /// Oldest generation spoken here.
        oldest: u32,
        /// Newest generation spoken here.
        newest: u32,
    },
    /// The agent refused the call and said why.
    #[error("{message}")]
    Guest {
        /// The reason, stable across versions.
        code: ErrorCode,
        /// The agent's words, at most [`agentiso_protocol::limits::MAX_ERROR_TEXT_BYTES`] bytes.
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
        /// How long it was waited for.
        after: Duration,
    },
    /// The agent does not know the call.
    #[error("the guest agent does not support {call}")]
    Unsupported {
        /// The call.
        call: &'static str,
    },
    /// The agent's answer contradicts the protocol.
    #[error("the guest agent answered {call} wrongly: {problem}")]
    Violation {
        /// The call.
        call: &'static str,
        /// What is wrong with the answer.
        problem: String,
    },
    /// The request cannot be sent because it exceeds a limit of the protocol.
    #[error("{what} is {actual} bytes long, the limit is {limit}")]
    RequestTooLarge {
        /// Which part of the request.
        what: &'static str,
        /// Its size.
        actual: usize,
        /// What is allowed.
        limit: usize,
    },
    /// What was to be written to the guest could not be read on the host.
    #[error("the data to be written to the guest could not be read")]
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
        // Errors of the transport come as a source; those that the guest sent have none.
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
