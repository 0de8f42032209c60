//! A guest in memory: a few commands, a few files.
//!
//! Commands: `echo TEXT`, `bytes N`, `wait` (until it is killed), `late` (times out), `limit N` (checks its timeout in
//! seconds), `signal N`, `panic`. Jobs: those of [`super::jobs`]. There is no git, only a clone and a push that get no
//! reply.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::paths::GuestPath;
use agentiso_daemon::vms::{ExecEvents, GuestAgent, LocalConnections};
use agentiso_daemon::{
    AgentFailure, Captured, Command, DirEntry, DirListing, EntryKind, ExecEvent, ExecOutcome, ExecSpec,
    FileContent, GuestCode, JobQuery, JobState, JobSummary, ListOptions, WriteFile,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

use super::disk::SharedFiles;
use super::jobs::FakeJobs;
use super::local::Ports;

/// From the contract, not from the code: a clone or a push with another timeout fails otherwise.
const CLONE_TIMEOUT: Duration = Duration::from_secs(300);
const PUSH_TIMEOUT: Duration = Duration::from_secs(120);

/// Entries of a directory that are listed at once.
const MAX_LISTED: usize = 3;

#[derive(Debug)]
pub(crate) struct FakeGuest {
    pub(crate) files: SharedFiles,
    pub(crate) waiting: Arc<AtomicUsize>,
    jobs: FakeJobs,
    id: WorkspaceId,
    ports: Ports,
}

impl FakeGuest {
    pub(crate) fn new(files: SharedFiles, waiting: Arc<AtomicUsize>, id: WorkspaceId, ports: Ports) -> Self {
        Self { files, jobs: FakeJobs::new(waiting.clone()), waiting, id, ports }
    }
}

/// Counts something that waits until it is dropped.
pub(crate) struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    pub(crate) fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn captured(output: &[u8], spec: &ExecSpec) -> Captured {
    let head = output.len().min(spec.head_bytes as usize);
    let tail = (output.len() - head).min(spec.tail_bytes as usize);
    Captured {
        head: Bytes::copy_from_slice(&output[..head]),
        tail: Bytes::copy_from_slice(&output[output.len() - tail..]),
        total_bytes: output.len() as u64,
    }
}

fn missing(path: &GuestPath) -> AgentFailure {
    AgentFailure::Refused { code: GuestCode::NotFound, message: format!("{path} does not exist") }
}

impl GuestAgent for FakeGuest {
    fn exec(&self, spec: ExecSpec) -> BoxFuture<'_, Result<ExecEvents, AgentFailure>> {
        let waiting = self.waiting.clone();
        async move {
            let (word, rest) = spec.command.split_once(' ').unwrap_or((&spec.command, ""));
            let mut outcome = ExecOutcome { exit_code: Some(0), ..ExecOutcome::default() };
            match word {
                "echo" => outcome.stdout = captured(format!("{rest}\n").as_bytes(), &spec),
                "bytes" => outcome.stdout = captured(&vec![b'x'; rest.parse().unwrap_or(0)], &spec),
                "late" => {
                    outcome = ExecOutcome { signal: Some(9), timed_out: true, ..ExecOutcome::default() };
                    outcome.stdout = captured(b"so far", &spec);
                }
                "limit" => {
                    let limit = spec.timeout.map(|limit| limit.as_secs().to_string()).unwrap_or_default();
                    outcome.stdout = captured(limit.as_bytes(), &spec);
                    outcome.exit_code = Some(i32::from(limit != rest));
                }
                "signal" => outcome = ExecOutcome { signal: rest.parse().ok(), ..ExecOutcome::default() },
                "panic" => panic!("as asked"),
                "wait" => {
                    let guard = Waiting::begin(&waiting);
                    let never = futures::stream::once(async move {
                        let _guard = guard;
                        pending::<Result<ExecEvent, AgentFailure>>().await
                    });
                    return Ok(never.boxed());
                }
                // Scripts of a clone and of a push: the target of the clone is absent, and no server replies.
                "set" if spec.command.contains("echo 'before absent'") => {
                    outcome.stdout = captured(b"before absent\n", &spec);
                }
                "set" if spec.command.contains("git clone") && spec.timeout == Some(CLONE_TIMEOUT) => {
                    outcome = ExecOutcome { signal: Some(9), timed_out: true, ..ExecOutcome::default() };
                }
                "set" if spec.command.contains("git push") && spec.timeout == Some(PUSH_TIMEOUT) => {
                    outcome = ExecOutcome { signal: Some(9), timed_out: true, ..ExecOutcome::default() };
                }
                _ => outcome.exit_code = Some(127),
            }
            Ok(futures::stream::iter([Ok(ExecEvent::Exited(outcome))]).boxed())
        }
        .boxed()
    }

    fn start_job(&self, command: Command) -> BoxFuture<'_, Result<u64, AgentFailure>> {
        async move { Ok(self.jobs.start(&command)) }.boxed()
    }

    fn poll_job(&self, query: JobQuery) -> BoxFuture<'_, Result<JobState, AgentFailure>> {
        self.jobs.poll(query).boxed()
    }

    fn kill_job(&self, id: u64, signal: i32) -> BoxFuture<'_, Result<bool, AgentFailure>> {
        async move { self.jobs.kill(id, signal) }.boxed()
    }

    fn list_jobs(&self) -> BoxFuture<'_, Result<Vec<JobSummary>, AgentFailure>> {
        async move { Ok(self.jobs.list()) }.boxed()
    }

    fn listen(&self, _port: u16) -> BoxFuture<'_, Result<LocalConnections, AgentFailure>> {
        async move { Ok(self.ports.listen(self.id)) }.boxed()
    }

    fn read_file<'a>(
        &'a self,
        path: &'a GuestPath,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<FileContent, AgentFailure>> {
        async move {
            let files = self.files.lock().expect("no panic");
            let (data, mode) = files.get(path.as_str()).ok_or_else(|| missing(path))?;
            let begin = (offset as usize).min(data.len());
            let end = begin.saturating_add(limit as usize).min(data.len());
            let data_slice = Bytes::copy_from_slice(&data[begin..end]);
            Ok(FileContent { data: data_slice, size: data.len() as u64, mode: *mode })
        }
        .boxed()
    }

    fn write_file(&self, file: WriteFile, data: Bytes) -> BoxFuture<'_, Result<(), AgentFailure>> {
        async move {
            let entry = (data.to_vec(), file.mode.unwrap_or(0o644));
            self.files.lock().expect("no panic").insert(file.path.as_str().to_owned(), entry);
            Ok(())
        }
        .boxed()
    }

    fn edit_file<'a>(
        &'a self,
        path: &'a GuestPath,
        old: &'a str,
        new: &'a str,
        replace_all: bool,
    ) -> BoxFuture<'a, Result<u64, AgentFailure>> {
        async move {
            let mut files = self.files.lock().expect("no panic");
            let (data, _) = files.get_mut(path.as_str()).ok_or_else(|| missing(path))?;
            let text = String::from_utf8_lossy(data).into_owned();
            if !text.contains(old) {
                let message = format!("the text does not occur in {path}");
                return Err(AgentFailure::Refused { code: GuestCode::NoMatch, message });
            }
            let count = if replace_all { usize::MAX } else { 1 };
            *data = text.replacen(old, new, count).into_bytes();
            Ok(1)
        }
        .boxed()
    }

    fn list_dir<'a>(
        &'a self,
        path: &'a GuestPath,
        _options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<DirListing, AgentFailure>> {
        async move {
            let files = self.files.lock().expect("no panic");
            let inside = format!("{}/", path.as_str().trim_end_matches('/'));
            let entries = files.iter().filter_map(|(name, (data, mode))| {
                let name = name.strip_prefix(&inside)?.to_owned();
                Some(DirEntry {
                    name,
                    kind: EntryKind::File,
                    size: data.len() as u64,
                    mode: *mode,
                    modified: 5,
                })
            });
            let listing: Vec<_> = entries.rev().collect();
            let truncated = listing.len() > MAX_LISTED;
            Ok(DirListing { entries: listing.into_iter().take(MAX_LISTED).collect(), truncated })
        }
        .boxed()
    }
}
