//! The failure of a control request, before it gets the hint for a person at a shell.

use super::wire::WireError;
use crate::error::OpError;

/// Advice for a person at a shell. The command line makes it, because it names its own commands.
pub type ShellHint = fn(&OpError) -> Option<String>;

#[derive(Debug)]
pub(super) enum RequestError {
    Operation(Box<OpError>),
    /// Already in the form of an answer.
    Wire(WireError),
}

impl From<OpError> for RequestError {
    fn from(error: OpError) -> Self {
        Self::Operation(Box::new(error))
    }
}

impl From<WireError> for RequestError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl RequestError {
    pub(super) fn into_wire(self, hint: ShellHint) -> WireError {
        match self {
            Self::Operation(error) => WireError {
                code: error.code().to_owned(),
                hint: hint(&error),
                retryable: error.retryable(),
                message: error.to_string(),
            },
            Self::Wire(error) => error,
        }
    }
}
