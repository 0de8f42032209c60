//! The calls of a running VM's guest. Each uses the existing connection, or has a broken one re-established first.

use std::collections::BTreeMap;
use std::time::Duration;

use agentiso_agent::{AgentError, FileReader, TreeReader, WriteOptions};
use agentiso_core::paths::GuestPath;
use agentiso_vm::{
    AgentFailure, Arrived, Command, DirListing, Download, ExecEvents, ExecOrJob, ExecSpec, FileContent,
    GuestAgent, JobQuery, JobState, JobSummary, ListOptions, LocalConnections, Pieces, Upload, WriteFile,
};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::Vm;

impl GuestAgent for Vm {
    fn exec(&self, spec: ExecSpec) -> BoxFuture<'_, Result<ExecEvents, AgentFailure>> {
        async move {
            let running = self.agent().await?.exec(spec).await?;
            let events = futures::stream::unfold(running, |mut running| async move {
                let event = running.next().await?;
                Some((event.map_err(AgentFailure::from), running))
            });
            Ok(events.boxed())
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
            let mut reader = self.agent().await?.read_file(path.as_str(), offset, Some(limit)).await?;
            let info = reader.info();
            let mut data = BytesMut::new();
            // The reader never returns more than was asked for.
            while let Some(piece) = reader.next().await? {
                data.extend_from_slice(&piece);
            }
            Ok(FileContent { data: data.freeze(), size: info.size, mode: info.mode })
        }
        .boxed()
    }

    fn write_file(&self, file: WriteFile, data: Bytes) -> BoxFuture<'_, Result<(), AgentFailure>> {
        async move {
            self.agent().await?.write_bytes(file.path.as_str(), options(&file), data).await?;
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
            let (old, new) = (old.as_bytes().to_vec(), new.as_bytes().to_vec());
            Ok(self.agent().await?.edit_file(path.as_str(), old, new, replace_all).await?)
        }
        .boxed()
    }

    fn list_dir<'a>(
        &'a self,
        path: &'a GuestPath,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<DirListing, AgentFailure>> {
        async move { Ok(self.agent().await?.list_dir(path.as_str(), options).await?) }.boxed()
    }

    fn start_job(&self, command: Command) -> BoxFuture<'_, Result<u64, AgentFailure>> {
        async move { Ok(self.agent().await?.start_job(command).await?) }.boxed()
    }

    fn poll_job(&self, query: JobQuery) -> BoxFuture<'_, Result<JobState, AgentFailure>> {
        async move { Ok(self.agent().await?.poll_job(query).await?) }.boxed()
    }

    fn kill_job(&self, id: u64, signal: i32) -> BoxFuture<'_, Result<bool, AgentFailure>> {
        async move { Ok(self.agent().await?.kill_job(id, signal).await?) }.boxed()
    }

    fn list_jobs(&self) -> BoxFuture<'_, Result<Vec<JobSummary>, AgentFailure>> {
        async move { Ok(self.agent().await?.list_jobs().await?) }.boxed()
    }

    fn exec_or_job(
        &self,
        command: Command,
        job_after: Duration,
        head_bytes: u64,
        tail_bytes: u64,
    ) -> BoxFuture<'_, Result<ExecOrJob, AgentFailure>> {
        async move { Ok(self.agent().await?.exec_or_job(command, job_after, head_bytes, tail_bytes).await?) }
            .boxed()
    }

    fn set_env(&self, vars: BTreeMap<String, String>) -> BoxFuture<'_, Result<(), AgentFailure>> {
        async move {
            self.agent().await?.set_env(vars).await?;
            Ok(())
        }
        .boxed()
    }

    fn upload_file(&self, file: WriteFile, source: Upload) -> BoxFuture<'_, Result<u64, AgentFailure>> {
        async move { Ok(self.agent().await?.write_file(file.path.as_str(), options(&file), source).await?) }
            .boxed()
    }

    fn download_file<'a>(&'a self, path: &'a GuestPath) -> BoxFuture<'a, Result<Download, AgentFailure>> {
        async move {
            let reader = self.agent().await?.read_file(path.as_str(), 0, None).await?;
            let info = reader.info();
            Ok(Download { size: info.size, mode: info.mode, pieces: file_pieces(reader) })
        }
        .boxed()
    }

    fn upload_tree<'a>(
        &'a self,
        path: &'a GuestPath,
        archive: Upload,
    ) -> BoxFuture<'a, Result<(), AgentFailure>> {
        async move {
            self.agent().await?.write_tree(path.as_str(), archive).await?;
            Ok(())
        }
        .boxed()
    }

    fn download_tree<'a>(&'a self, path: &'a GuestPath) -> BoxFuture<'a, Result<Pieces, AgentFailure>> {
        async move { Ok(tree_pieces(self.agent().await?.read_tree(path.as_str()).await?)) }.boxed()
    }

    fn listen(&self, port: u16) -> BoxFuture<'_, Result<LocalConnections, AgentFailure>> {
        async move {
            let listener = self.agent().await?.listen(port).await?;
            // It ends with the first error: the guest has stopped listening.
            let connections = futures::stream::try_unfold(listener, |mut listener| async move {
                Ok::<_, AgentError>(Some((listener.accept().await?, listener)))
            });
            Ok(connections.map_err(AgentFailure::from).boxed())
        }
        .boxed()
    }
}

fn options(file: &WriteFile) -> WriteOptions {
    WriteOptions { mode: file.mode, create_parents: file.create_parents }
}

/// The pieces of a file, and an end that says that it is complete.
fn file_pieces(reader: FileReader) -> Pieces {
    let pieces = futures::stream::try_unfold(Some(reader), |reader| async move {
        let Some(mut reader) = reader else { return Ok(None) };
        Ok::<_, AgentError>(Some(match reader.next().await? {
            Some(data) => (Arrived::Data(data), Some(reader)),
            None => (Arrived::End { skipped: 0 }, None),
        }))
    });
    pieces.map_err(AgentFailure::from).boxed()
}

fn tree_pieces(reader: TreeReader) -> Pieces {
    let pieces = futures::stream::try_unfold(Some(reader), |reader| async move {
        let Some(mut reader) = reader else { return Ok(None) };
        Ok::<_, AgentError>(Some(match reader.next().await? {
            Some(data) => (Arrived::Data(data), Some(reader)),
            None => (Arrived::End { skipped: reader.skipped() }, None),
        }))
    });
    pieces.map_err(AgentFailure::from).boxed()
}
