//! Reasons why a workspace could not be prepared.

use agentiso_core::names::WorkspaceName;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum PrepareError {
    #[error("workspace {name} is being prepared by another call")]
    UnderWay { name: WorkspaceName },
    #[error("setup command {number}/{total} of workspace {name} {ended}: {command}\n{output}")]
    Setup {
        name: WorkspaceName,
        /// Counted from 1.
        number: usize,
        total: usize,
        command: String,
        /// Its end in words: `ended with exit code 3`.
        ended: String,
        /// The end of its output.
        output: String,
    },
}

impl PrepareError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::UnderWay { .. } => "prepare_in_progress",
            Self::Setup { .. } => "setup_failed",
        }
    }

    pub(crate) fn retryable(&self) -> bool {
        match self {
            Self::UnderWay { .. } => true,
            Self::Setup { .. } => false,
        }
    }
}
