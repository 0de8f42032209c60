//! Errors of file operations, and their codes for the host.

use std::io;

use agentiso_protocol::{ErrorCode, limits};
use agentiso_tree::TreeError;
use rustix::io::Errno;

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path cannot name a file.
    #[error(
        "{path:?} is not a valid path: it must be absolute, at most 4095 bytes long, and without a zero byte"
    )]
    Path {
        /// As it was given.
        path: String,
    },
    /// The kernel refused an operation.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// A directory where a file was expected.
    #[error("{path} is a directory")]
    IsDirectory {
        /// The directory.
        path: String,
    },
    /// A device, pipe or socket where a file was expected.
    #[error("{path} is not a regular file")]
    NotRegular {
        /// The special file.
        path: String,
    },
    /// The file is too large to be edited.
    #[error("{path} is larger than {limit} bytes")]
    TooLarge {
        /// The file.
        path: String,
        /// The most bytes.
        limit: u64,
    },
    /// A directory could not be packed or unpacked.
    #[error("{path}: {source}")]
    Tree {
        /// The directory.
        path: String,
        /// The cause.
        source: TreeError,
    },
    /// The pattern is too long.
    #[error("the pattern is longer than {} bytes", limits::MAX_GLOB_BYTES)]
    LongPattern,
    /// The text to be replaced is empty.
    #[error("the text to be replaced is empty")]
    EmptyPattern,
    /// The text does not occur.
    #[error("{path} does not contain the text to be replaced")]
    NoMatch {
        /// The file.
        path: String,
    },
    /// The mode has bits that do not exist.
    #[error("{mode:o} is not a valid file mode")]
    Mode {
        /// As it was given.
        mode: u32,
    },
    /// The upload ended before the file was complete.
    #[error("the upload of {path} was cut off")]
    CutOff {
        /// The file that was not written.
        path: String,
    },
    /// The call was cancelled, so its result has no receiver.
    #[error("the call was cancelled")]
    Cancelled,
}

impl FileError {
    /// The code for the host.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Path { .. }
            | Self::EmptyPattern
            | Self::Mode { .. }
            | Self::LongPattern
            | Self::CutOff { .. }
            | Self::Cancelled => ErrorCode::Invalid,
            Self::Io { source, .. } => code_of(source),
            Self::Tree { source, .. } => source.io().map_or(ErrorCode::Invalid, code_of),
            Self::IsDirectory { .. } => ErrorCode::IsDirectory,
            Self::NotRegular { .. } => ErrorCode::NotRegular,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::NoMatch { .. } => ErrorCode::NoMatch,
        }
    }
}

/// The code for an error of the kernel.
fn code_of(error: &io::Error) -> ErrorCode {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => ErrorCode::NotFound,
        Some(Errno::ISDIR) => ErrorCode::IsDirectory,
        Some(Errno::NOTDIR) => ErrorCode::NotDirectory,
        Some(Errno::NOTEMPTY) => ErrorCode::NotEmpty,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => ErrorCode::PermissionDenied,
        Some(Errno::NOSPC | Errno::DQUOT) => ErrorCode::NoSpace,
        Some(Errno::FBIG) => ErrorCode::TooLarge,
        Some(Errno::LOOP) => ErrorCode::LinkLoop,
        Some(Errno::NAMETOOLONG | Errno::INVAL) => ErrorCode::Invalid,
        Some(Errno::NOMEM) => ErrorCode::OutOfMemory,
        Some(Errno::NXIO | Errno::NODEV | Errno::AGAIN) => ErrorCode::NotRegular,
        Some(_) | None => ErrorCode::System,
    }
}

/// Adds the path of the file to an error of the kernel.
pub(super) trait WithPath<T> {
    fn with_path(self, path: &std::path::Path) -> Result<T, FileError>;
}

impl<T, E: Into<io::Error>> WithPath<T> for Result<T, E> {
    fn with_path(self, path: &std::path::Path) -> Result<T, FileError> {
        self.map_err(|error| FileError::Io { path: path.display().to_string(), source: error.into() })
    }
}
