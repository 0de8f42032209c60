//! Adapts the client of the guest agent to this crate's types. Each call uses the existing connection, or has a
//! broken one re-established first.

use std::collections::BTreeMap;
use std::time::Duration;

use agentiso_core::paths::GuestPath;
use agentiso_host::agent::{self, AgentClient, FileKind, WriteOptions, limits};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::convert::agent_failure;
use super::{jobs, local, transfer};
use crate::vms::{
    AgentFailure, Captured, Command, DirEntry, DirListing, Download, EntryKind, ExecEvent, ExecEvents,
    ExecOrJob, ExecOutcome, ExecSpec, FileContent, GuestAgent, JobQuery, JobState, JobSummary, ListOptions,
    LocalConnections, OutputStream, Pieces, Upload, WriteFile,
};

#[derive(Debug)]
pub(super) struct QemuAgent {
    vm: agentiso_host::Vm,
}

impl QemuAgent {
    pub(super) fn new(vm: agentiso_host::Vm) -> Self {
        Self { vm }
    }

    async fn client(&self) -> Result<AgentClient, AgentFailure> {
        self.vm.agent().await.map_err(agent_failure)
    }
}

impl GuestAgent for QemuAgent {
    fn exec(&self, spec: ExecSpec) -> BoxFuture<'_, Result<ExecEvents, AgentFailure>> {
        async move {
            let running = self.client().await?.exec(exec_spec(spec)).await.map_err(agent_failure)?;
            let events = futures::stream::unfold(running, |mut running| async move {
                let event = running.next().await?;
                Some((event.map(exec_event).map_err(agent_failure), running))
            });
            Ok(Box::pin(events) as ExecEvents)
        }
        .boxed()
    }

    fn read_file<'a>(
        &'a self,
        path: &'a GuestPath,
        offset: u64,
        limit: u64,
    ) -> BoxFuture<'a, Result<FileContent, AgentFailure>> {
        async move {
            let client = self.client().await?;
            let mut reader =
                client.read_file(path.as_str(), offset, Some(limit)).await.map_err(agent_failure)?;
            let info = reader.info();
            let mut data = BytesMut::new();
            // The reader never returns more than was asked for.
            while let Some(piece) = reader.next().await.map_err(agent_failure)? {
                data.extend_from_slice(&piece);
            }
            Ok(FileContent { data: data.freeze(), size: info.size, mode: info.mode })
        }
        .boxed()
    }

    fn write_file(&self, file: WriteFile, data: Bytes) -> BoxFuture<'_, Result<(), AgentFailure>> {
        async move {
            let options = WriteOptions { mode: file.mode, create_parents: file.create_parents };
            let client = self.client().await?;
            let written = client.write_bytes(file.path.as_str(), options, data).await.map_err(agent_failure);
            written.map(drop)
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
            let (old, new) = (old.as_bytes().to_vec(), new.as_bytes().to_vec());
            let client = self.client().await?;
            client.edit_file(path.as_str(), old, new, replace_all).await.map_err(agent_failure)
        }
        .boxed()
    }

    fn list_dir<'a>(
        &'a self,
        path: &'a GuestPath,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<DirListing, AgentFailure>> {
        async move {
            let glob = options.glob.as_deref().unwrap_or_default().as_bytes();
            let options = agent::ListOptions { depth: options.depth, glob };
            let client = self.client().await?;
            let listing = client.list_dir(path.as_str(), options).await.map_err(agent_failure)?;
            let entries = listing.entries.into_iter().map(dir_entry).collect();
            Ok(DirListing { entries, truncated: listing.truncated })
        }
        .boxed()
    }

    fn start_job(&self, command: Command) -> BoxFuture<'_, Result<u64, AgentFailure>> {
        async move { self.client().await?.start_job(jobs::spec(command)).await.map_err(agent_failure) }
            .boxed()
    }

    fn poll_job(&self, query: JobQuery) -> BoxFuture<'_, Result<JobState, AgentFailure>> {
        async move {
            let state = self.client().await?.poll_job(jobs::query(query)).await.map_err(agent_failure)?;
            Ok(jobs::state(state))
        }
        .boxed()
    }

    fn kill_job(&self, id: u64, signal: i32) -> BoxFuture<'_, Result<bool, AgentFailure>> {
        async move { self.client().await?.kill_job(id, signal).await.map_err(agent_failure) }.boxed()
    }

    fn list_jobs(&self) -> BoxFuture<'_, Result<Vec<JobSummary>, AgentFailure>> {
        async move {
            let all = self.client().await?.list_jobs().await.map_err(agent_failure)?;
            Ok(all.into_iter().map(jobs::summary).collect())
        }
        .boxed()
    }

    fn exec_or_job(
        &self,
        command: Command,
        job_after: Duration,
        head_bytes: u64,
        tail_bytes: u64,
    ) -> BoxFuture<'_, Result<ExecOrJob, AgentFailure>> {
        async move {
            let client = self.client().await?;
            let ended = client.exec_or_job(jobs::spec(command), job_after, head_bytes, tail_bytes).await;
            let agent::ExecOrJob { job, state } = ended.map_err(agent_failure)?;
            Ok(ExecOrJob { job, state: jobs::state(state) })
        }
        .boxed()
    }

    fn set_env(&self, vars: BTreeMap<String, String>) -> BoxFuture<'_, Result<(), AgentFailure>> {
        async move { self.client().await?.set_env(vars).await.map(drop).map_err(agent_failure) }.boxed()
    }

    fn upload_file(&self, file: WriteFile, source: Upload) -> BoxFuture<'_, Result<u64, AgentFailure>> {
        async move {
            let options = WriteOptions { mode: file.mode, create_parents: file.create_parents };
            let client = self.client().await?;
            client.write_file(file.path.as_str(), options, source).await.map_err(agent_failure)
        }
        .boxed()
    }

    fn download_file<'a>(&'a self, path: &'a GuestPath) -> BoxFuture<'a, Result<Download, AgentFailure>> {
        async move {
            let reader =
                self.client().await?.read_file(path.as_str(), 0, None).await.map_err(agent_failure)?;
            let info = reader.info();
            Ok(Download { size: info.size, mode: info.mode, pieces: transfer::file_pieces(reader) })
        }
        .boxed()
    }

    fn upload_tree<'a>(
        &'a self,
        path: &'a GuestPath,
        archive: Upload,
    ) -> BoxFuture<'a, Result<(), AgentFailure>> {
        async move {
            let client = self.client().await?;
            client.write_tree(path.as_str(), archive).await.map(drop).map_err(agent_failure)
        }
        .boxed()
    }

    fn download_tree<'a>(&'a self, path: &'a GuestPath) -> BoxFuture<'a, Result<Pieces, AgentFailure>> {
        async move {
            let reader = self.client().await?.read_tree(path.as_str()).await.map_err(agent_failure)?;
            Ok(transfer::tree_pieces(reader))
        }
        .boxed()
    }

    fn listen(&self, port: u16) -> BoxFuture<'_, Result<LocalConnections, AgentFailure>> {
        async move {
            let listener = self.client().await?.listen(port).await.map_err(agent_failure)?;
            Ok(local::connections(listener))
        }
        .boxed()
    }
}

fn exec_spec(spec: ExecSpec) -> agent::ExecSpec {
    agent::ExecSpec {
        shell: spec.command.into_bytes(),
        workdir: spec.workdir.map(|path| path.as_str().as_bytes().to_vec()),
        env: spec.env,
        timeout: spec.timeout.unwrap_or(Duration::from_millis(limits::MAX_EXEC_TIMEOUT_MS)),
        head_bytes: spec.head_bytes,
        tail_bytes: spec.tail_bytes,
        stream: spec.stream,
    }
}

fn exec_event(event: agent::ExecEvent) -> ExecEvent {
    match event {
        agent::ExecEvent::Started { pid } => ExecEvent::Started { pid },
        agent::ExecEvent::Output { stream, data } => {
            let stream = match stream {
                agent::OutputStream::Stdout => OutputStream::Stdout,
                agent::OutputStream::Stderr => OutputStream::Stderr,
            };
            ExecEvent::Output { stream, data }
        }
        agent::ExecEvent::Exited(outcome) => ExecEvent::Exited(ExecOutcome {
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            timed_out: outcome.timed_out,
            stdout: captured(outcome.stdout),
            stderr: captured(outcome.stderr),
            duration: outcome.duration,
        }),
    }
}

pub(super) fn captured(kept: agent::Captured) -> Captured {
    Captured { head: kept.head, tail: kept.tail, total_bytes: kept.total_bytes }
}

fn dir_entry(entry: agent::DirEntry) -> DirEntry {
    DirEntry {
        name: String::from_utf8_lossy(&entry.name).into_owned(),
        kind: match entry.info.kind {
            FileKind::File => EntryKind::File,
            FileKind::Directory => EntryKind::Dir,
            FileKind::Symlink => EntryKind::Symlink,
            FileKind::Other => EntryKind::Other,
        },
        size: entry.info.size,
        mode: entry.info.mode,
        modified: entry.info.modified_s,
    }
}
