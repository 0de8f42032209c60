//! Calls that a guest's agent answers: commands, jobs and files.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use agentiso_core::paths::GuestPath;
use bytes::Bytes;
use futures::future::BoxFuture;

use crate::exec::{Command, ExecEvents, ExecSpec};
use crate::failure::AgentFailure;
use crate::files::{DirListing, Download, FileContent, ListOptions, Pieces, Upload, WriteFile};
use crate::jobs::{ExecOrJob, JobQuery, JobState, JobSummary};
use crate::local::LocalConnections;

/// A connection to one guest that reconnects by itself. Any number of calls may run at once.
pub trait GuestAgent: fmt::Debug + Send + Sync + 'static {
    fn exec(&self, spec: ExecSpec) -> BoxFuture<'_, Result<ExecEvents, AgentFailure>>;

    /// Reads at most `limit` bytes from `offset`; beyond the end there are none.
    fn read_file<'a>(
        &'a self,
        path: &'a GuestPath,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<FileContent, AgentFailure>>;

    fn write_file(&self, file: WriteFile, data: Bytes) -> BoxFuture<'_, Result<(), AgentFailure>>;

    /// Returns the number of occurrences replaced.
    fn edit_file<'a>(
        &'a self,
        path: &'a GuestPath,
        old: &'a str,
        new: &'a str,
        replace_all: bool,
    ) -> BoxFuture<'a, Result<u64, AgentFailure>>;

    fn list_dir<'a>(
        &'a self,
        path: &'a GuestPath,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<DirListing, AgentFailure>>;

    /// Starts a command that outlives the connection.
    fn start_job(&self, _command: Command) -> BoxFuture<'_, Result<u64, AgentFailure>> {
        unsupported("start_job")
    }

    fn poll_job(&self, _query: JobQuery) -> BoxFuture<'_, Result<JobState, AgentFailure>> {
        unsupported("poll_job")
    }

    /// Returns whether the job still runs after the signal.
    fn kill_job(&self, _id: u64, _signal: i32) -> BoxFuture<'_, Result<bool, AgentFailure>> {
        unsupported("kill_job")
    }

    fn list_jobs(&self) -> BoxFuture<'_, Result<Vec<JobSummary>, AgentFailure>> {
        unsupported("list_jobs")
    }

    /// Dropping the future before the command became a job kills it.
    fn exec_or_job(
        &self,
        _command: Command,
        _job_after: Duration,
        _head_bytes: u64,
        _tail_bytes: u64,
    ) -> BoxFuture<'_, Result<ExecOrJob, AgentFailure>> {
        unsupported("exec_or_job")
    }

    fn set_env(&self, _vars: BTreeMap<String, String>) -> BoxFuture<'_, Result<(), AgentFailure>> {
        unsupported("set_env")
    }

    /// The file appears whole or not at all, as everything that is sent. Returns its size.
    fn upload_file(&self, _file: WriteFile, _source: Upload) -> BoxFuture<'_, Result<u64, AgentFailure>> {
        unsupported("upload_file")
    }

    fn download_file<'a>(&'a self, _path: &'a GuestPath) -> BoxFuture<'a, Result<Download, AgentFailure>> {
        unsupported("download_file")
    }

    /// Unpacks an archive.
    fn upload_tree<'a>(
        &'a self,
        _path: &'a GuestPath,
        _archive: Upload,
    ) -> BoxFuture<'a, Result<(), AgentFailure>> {
        unsupported("upload_tree")
    }

    fn download_tree<'a>(&'a self, _path: &'a GuestPath) -> BoxFuture<'a, Result<Pieces, AgentFailure>> {
        unsupported("download_tree")
    }

    /// Listens on a port of the guest's loopback.
    fn listen(&self, _port: u16) -> BoxFuture<'_, Result<LocalConnections, AgentFailure>> {
        unsupported("listen")
    }
}

fn unsupported<'a, T: Send + 'a>(call: &'static str) -> BoxFuture<'a, Result<T, AgentFailure>> {
    Box::pin(std::future::ready(Err(AgentFailure::Unsupported { call })))
}
