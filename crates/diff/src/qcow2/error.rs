//! Errors of the qcow2 reader.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::chain::MAX_DEPTH;
use crate::watch::Ended;

#[derive(Debug, Error)]
pub enum Qcow2Error {
    #[error("{}: {problem}", path.display())]
    Layer { path: PathBuf, problem: LayerError },
    #[error("{}: it is its own backing file, directly or by way of others", path.display())]
    Cycle { path: PathBuf },
    #[error("{}: more than {MAX_DEPTH} disks are stacked on each other", path.display())]
    Depth { path: PathBuf },
    #[error("{}: the tables of the chain take more than {limit} bytes", path.display())]
    Tables { path: PathBuf, limit: u64 },
    #[error("{length} bytes at {offset} are not on a disk of {size} bytes")]
    Beyond { offset: u64, length: u64, size: u64 },
}

impl Qcow2Error {
    pub(crate) fn layer(path: impl Into<PathBuf>) -> impl FnOnce(LayerError) -> Self {
        let path = path.into();
        move |problem| Self::Layer { path, problem }
    }
}

/// Errors of one file.
#[derive(Debug, Error)]
pub enum LayerError {
    #[error("it could not be read: {0}")]
    Read(#[from] io::Error),
    #[error("it is not a regular file")]
    NotAFile,
    #[error("it is not in qcow2 format")]
    Magic,
    #[error("it is qcow2 version {0}; version 3 is supported")]
    Version(u32),
    #[error("it uses {0}, which is not supported")]
    Unsupported(&'static str),
    #[error("it has features that are not known here: {0:#x}")]
    Features(u64),
    #[error("it is marked as damaged")]
    Damaged,
    #[error("the {what} in its header cannot be {value}")]
    Header { what: &'static str, value: u64 },
    #[error("its backing file's name cannot be followed")]
    BackingName,
    #[error("its {table} table has an entry {value:#x} that leads nowhere")]
    Entry { table: &'static str, value: u64 },
    #[error("two entries of its L1 table lead to the same place, {0:#x}")]
    SharedTable(u64),
    #[error("it is scattered over more than {0} places")]
    Scattered(usize),
    #[error(transparent)]
    Ended(#[from] Ended),
}
