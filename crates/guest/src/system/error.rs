//! Errors of changes to the guest, and their codes for the host.

use std::io;

use agentiso_protocol::ErrorCode;

use crate::files::FileError;

/// A change to the guest that failed.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// The agent does not run as the init of a VM.
    #[error("this agent does not run as init of a guest")]
    NotVm,
    /// The request is not valid.
    #[error("{what} is invalid: {value:?}")]
    Invalid {
        /// The part of the request.
        what: &'static str,
        /// The value as it was given.
        value: String,
    },
    /// A device did not appear.
    #[error("{device} did not appear in time")]
    NoDevice {
        /// The device.
        device: String,
    },
    /// The disk did not get the size that was announced.
    #[error("the disk has {actual} bytes, but {expected} were expected")]
    DiskSize {
        /// Its size.
        actual: u64,
        /// The announced size.
        expected: u64,
    },
    /// A module could not be loaded.
    #[error("the kernel module {module} could not be loaded")]
    Module {
        /// Its name.
        module: String,
        /// The cause.
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
        /// The step that failed.
        step: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl SystemError {
    /// The code for the host.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotVm => ErrorCode::NotVm,
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

/// Adds the step to an error of the kernel.
pub(super) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, SystemError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, SystemError> {
        self.map_err(|error| SystemError::System { step, source: error.into() })
    }
}
