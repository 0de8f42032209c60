//! A machine with a working tree in it.

use std::fmt;

use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::script::{Ran, Script};

pub trait Place: Send + Sync {
    type Error: fmt::Display + Send;

    /// Runs a script to its end. Dropping the future kills it.
    fn run<'a>(&'a self, script: &'a Script) -> BoxFuture<'a, Result<Ran, Self::Error>>;

    /// At most `limit` bytes of a file from `offset`.
    fn read<'a>(
        &'a self,
        path: &'a GuestPath,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<Bytes, Self::Error>>;

    /// Makes a file, and the directories it is in.
    fn write<'a>(&'a self, path: &'a GuestPath, data: Bytes) -> BoxFuture<'a, Result<(), Self::Error>>;

    /// A directory that is not there yet, for this merge alone. It is removed in the end.
    fn bench(&self) -> &GuestPath;
}
