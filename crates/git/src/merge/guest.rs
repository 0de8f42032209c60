//! The interface to a workspace with a working tree: run a script, read and write files.

use std::fmt;

use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::script::{Ran, Script};

pub trait GitGuest: Send + Sync {
    type Error: fmt::Display + Send;

    /// Runs a script to its end. Dropping the future kills it.
    fn run<'a>(&'a self, script: &'a Script) -> BoxFuture<'a, Result<Ran, Self::Error>>;

    /// Reads at most `limit` bytes of a file from `offset`.
    fn read<'a>(
        &'a self,
        path: &'a GuestPath,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<Bytes, Self::Error>>;

    /// Writes a new file, and makes its parent directories.
    fn write<'a>(&'a self, path: &'a GuestPath, data: Bytes) -> BoxFuture<'a, Result<(), Self::Error>>;

    /// A directory that does not exist yet, for this merge only. It is removed at the end.
    fn bench(&self) -> &GuestPath;
}
