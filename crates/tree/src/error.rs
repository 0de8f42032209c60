//! Why a directory could not be packed or unpacked.

use std::io;

use rustix::io::Errno;

/// What went wrong, at which path below the directory.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The system refused something.
    #[error("{path}: {source}")]
    Io {
        /// Below the directory.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The archive could not be written or read on: whoever has the other end of it says why.
    #[error("the archive was cut off: {0}")]
    Archive(#[source] io::Error),
    /// A symbolic link that is not wanted.
    #[error(
        "{path} is a symbolic link to {target}, which leads out of the directory, or may; remove it and try again"
    )]
    LinkOutside {
        /// Below the directory.
        path: String,
        /// What it says.
        target: String,
    },
    /// An archive that nobody packs.
    #[error("the archive is not valid: {problem}")]
    Invalid {
        /// What is wrong with it.
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
