//! Errors of packing and unpacking a directory.

use std::io;

use rustix::io::Errno;

/// The error, with the path below the directory.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A system call failed.
    #[error("{path}: {source}")]
    Io {
        /// The path below the directory.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The archive stream failed; the other end knows the reason.
    #[error("the archive was cut off: {0}")]
    Archive(#[source] io::Error),
    /// A symbolic link that may lead out of the directory.
    #[error(
        "{path} is a symbolic link to {target}, which leads out of the directory, or may; remove it and try again"
    )]
    LinkOutside {
        /// The path below the directory.
        path: String,
        /// The target of the link.
        target: String,
    },
    /// An archive that this crate would never make.
    #[error("the archive is not valid: {problem}")]
    Invalid {
        /// The problem.
        problem: String,
    },
}

impl TreeError {
    pub(crate) fn invalid(problem: impl Into<String>) -> Self {
        Self::Invalid { problem: problem.into() }
    }

    /// The system's reason, if there is one.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Io { source, .. } | Self::Archive(source) => Some(source),
            Self::LinkOutside { .. } | Self::Invalid { .. } => None,
        }
    }
}

/// For `map_err`: names the path.
pub(crate) fn at(path: &[u8]) -> impl FnOnce(Errno) -> TreeError {
    let path = String::from_utf8_lossy(path).into_owned();
    move |error| TreeError::Io { path, source: error.into() }
}
