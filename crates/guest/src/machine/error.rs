//! What can go wrong with the machine.

use std::io;

use agentiso_protocol::ErrorCode;

use crate::files::FileError;

/// A change to the machine that failed.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The agent does not run in a machine of its own.
    #[error("this agent does not run as the init of a machine")]
    NotMachine,
    /// The request makes no sense.
    #[error("{what} is not valid: {value:?}")]
    Invalid {
        /// Which part.
        what: &'static str,
        /// As it was given.
        value: String,
    },
    /// A device did not appear.
    #[error("{device} did not appear in time")]
    NoDevice {
        /// The device.
        device: String,
    },
    /// The disk did not get the size that was announced.
    #[error("the disk has {actual} bytes, {expected} were expected")]
    DiskSize {
        /// What it has.
        actual: u64,
        /// What it should have.
        expected: u64,
    },
    /// A module could not be loaded.
    #[error("the kernel module {module} could not be loaded")]
    Module {
        /// Its name.
        module: String,
        /// Why.
        source: io::Error,
    },
    /// The image has no init.
    #[error("the image has no /sbin/init")]
    NoInit,
    /// A file of the image could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The kernel refused a step.
    #[error("{step} failed")]
    System {
        /// What was tried.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl MachineError {
    /// The code for the host.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotMachine => ErrorCode::NotMachine,
            Self::Invalid { .. } => ErrorCode::Invalid,
            Self::NoDevice { .. } | Self::DiskSize { .. } => ErrorCode::NoDevice,
            Self::NoInit => ErrorCode::NotFound,
            Self::File(error) => error.code(),
            Self::Module { .. } | Self::System { .. } => ErrorCode::System,
        }
    }

    pub(super) fn invalid(what: &'static str, value: impl Into<String>) -> Self {
        Self::Invalid { what, value: value.into() }
    }
}

/// Names the step in an error of the kernel.
pub(super) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, MachineError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, MachineError> {
        self.map_err(|error| MachineError::System { step, source: error.into() })
    }
}
