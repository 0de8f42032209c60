//! Reasons why an item in quarantine could not be found, recovered or discarded.

use thiserror::Error;

use crate::ledger::LedgerError;

#[derive(Debug, Error)]
pub enum QuarantineError {
    #[error("nothing called {wanted:?} is in quarantine")]
    NotFound { wanted: String },
    #[error("{count} things called {wanted:?} are in quarantine")]
    Ambiguous { wanted: String, count: usize },
    #[error("the description of {what} was written by a newer agentiso (format {format})")]
    Newer { what: String, format: u64 },
    #[error("{what} cannot be recovered: {reason}")]
    Unusable { what: String, reason: String },
    #[error("{what} could not be discarded: {reason}")]
    NotDiscarded { what: String, reason: String },
    #[error("{what} could not be marked as recovered: {source}")]
    Mark {
        what: String,
        #[source]
        source: LedgerError,
    },
}

impl QuarantineError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::Ambiguous { .. } => "not_in_quarantine",
            Self::Newer { .. } | Self::Unusable { .. } => "not_recoverable",
            Self::NotDiscarded { .. } => "not_discarded",
            Self::Mark { .. } => "state_not_saved",
        }
    }
}
