//! Errors of reading or writing the ledger or a description.

use std::io;
use std::path::{Path, PathBuf};

use agentiso_sys::files::is_out_of_space;
use thiserror::Error;

use super::schema::SCHEMA_VERSION;

#[derive(Debug, Error)]
pub enum LedgerError {
    #[error("no space left on the disk of {path}")]
    NoSpace { path: PathBuf },
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} was written by a newer agentiso (schema {found}, this one knows {SCHEMA_VERSION}); use that version or move the file away"
    )]
    Newer { path: PathBuf, found: u64 },
    #[error("{path} would have {bytes} bytes, more than the {limit} that can be read back")]
    TooLarge { path: PathBuf, bytes: u64, limit: u64 },
    #[error("cannot serialize the state: {0}")]
    Serialize(#[source] serde_json::Error),
}

impl LedgerError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        if is_out_of_space(&source) { Self::NoSpace { path } } else { Self::Io { path, source } }
    }
}
