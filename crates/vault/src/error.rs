//! Errors of the vault. Every message names the path.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use crate::path::PathError;

#[derive(Debug, Error)]
pub enum VaultError {
    #[error("the vault {} cannot be opened: {source}", path.display())]
    Root {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("path {path:?} cannot be used: {problem}")]
    Path {
        path: String,
        #[source]
        problem: PathError,
    },
    #[error("{path} does not exist in the vault")]
    NotFound { path: String },
    #[error("{path} exists already")]
    Exists { path: String },
    #[error("{path} is a folder")]
    IsFolder { path: String },
    #[error("{path} is not a folder, or one of its parents is not")]
    NotFolder { path: String },
    #[error("{path} is neither a file nor a folder")]
    NotRegular { path: String },
    #[error("{path} leads through a symbolic link, which the vault does not follow")]
    Link { path: String },
    #[error("{path} is inside {folder}, which the vault leaves alone (vault.exclude_dirs)")]
    Excluded { path: String, folder: String },
    #[error("{path} would have {size} bytes; a note may have at most {max}")]
    TooLarge { path: String, size: u64, max: u64 },
    #[error("{path} is a binary file, not text in UTF-8")]
    Binary { path: String },
    #[error("the frontmatter of {path} cannot be used: {problem}")]
    Frontmatter { path: String, problem: String },
    #[error("the regular expression cannot be used: {problem}")]
    Pattern { problem: String },
    #[error("another program kept changing {path}")]
    Busy { path: String },
    #[error("the file system of {path} cannot exchange files, so they could not be changed safely")]
    FileSystem { path: String },
    #[error("no space left on the disk of {path}")]
    NoSpace { path: String },
    #[error("cannot {action} {path}: {source}")]
    Io {
        action: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
}

impl VaultError {
    /// For `map_err`: names the action and the path of a failed system call.
    pub(crate) fn at(action: &'static str, path: impl ToString) -> impl FnOnce(Errno) -> Self {
        let path = path.to_string();
        move |errno| match errno {
            Errno::NOENT => Self::NotFound { path },
            Errno::EXIST => Self::Exists { path },
            Errno::ISDIR => Self::IsFolder { path },
            Errno::NOTDIR => Self::NotFolder { path },
            Errno::LOOP | Errno::XDEV => Self::Link { path },
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace { path },
            Errno::INVAL if action == REPLACE => Self::FileSystem { path },
            other => Self::Io { action, path, source: other.into() },
        }
    }

    /// A stable word that programs can compare.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Root { .. } => "vault_unavailable",
            Self::Path { .. } => "bad_path",
            Self::NotFound { .. } => "not_found",
            Self::Exists { .. } => "file_exists",
            Self::IsFolder { .. } => "is_directory",
            Self::NotFolder { .. } => "not_directory",
            Self::NotRegular { .. } => "not_regular",
            Self::Link { .. } => "symbolic_link",
            Self::Excluded { .. } => "excluded",
            Self::TooLarge { .. } => "too_large",
            Self::Binary { .. } => "binary_file",
            Self::Frontmatter { .. } => "bad_frontmatter",
            Self::Pattern { .. } => "bad_pattern",
            Self::Busy { .. } => "busy",
            Self::FileSystem { .. } => "unsupported",
            Self::NoSpace { .. } => "no_space",
            Self::Io { .. } => "vault_failed",
        }
    }

    /// Whether the same call may succeed later without any change.
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

/// The action for which the error EINVAL means that the file system lacks a needed feature.
pub(crate) const REPLACE: &str = "replace";
