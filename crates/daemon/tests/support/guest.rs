//! A fake guest with one file, one word of memory and few commands: `write X` and `read` for the disk, `remember X`
//! and `recall` for the memory, `fail`, `sleep`, which never ends, and `wait`, which ends on a signal. Any other
//! command is echoed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agentiso_core::paths::GuestPath;
use agentiso_daemon::vms::{ExecEvents, GuestAgent, GuestCode};
use agentiso_daemon::{
    AgentFailure, Captured, DirListing, ExecEvent, ExecOutcome, ExecSpec, FileContent, ListOptions,
    OutputStream, WriteFile,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

use super::host::{FakeHost, Fault};
use super::volume::Volume;

#[derive(Debug)]
pub(crate) struct FakeGuest {
    pub(crate) host: Arc<FakeHost>,
    pub(crate) pid: i32,
    pub(crate) data_dir: PathBuf,
}

impl FakeGuest {
    /// The output of a command, or its exit code on failure.
    fn run(&self, command: &str) -> Result<String, i32> {
        match command.split_once(' ') {
            Some(("write", text)) => {
                let written =
                    self.host.change_volume(&self.data_dir, |volume| text.clone_into(&mut volume.content));
                written.map(|()| String::new()).map_err(|_| 5)
            }
            Some(("remember", text)) => {
                self.host.remember(self.pid, text);
                Ok(String::new())
            }
            Some(_) | None => match command {
                "read" => Ok(Volume::load(&self.data_dir).ok_or(5)?.content),
                "recall" => Ok(self.host.memory(self.pid)),
                "fail" => Err(3),
                said => Ok(said.to_owned()),
            },
        }
    }
}

/// Counts a command whose stream was dropped before its end.
struct KilledOnDrop(Arc<AtomicU64>);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn refused() -> AgentFailure {
    AgentFailure::Refused { code: GuestCode::NotFound, message: "there are no files here".to_owned() }
}

impl GuestAgent for FakeGuest {
    fn exec(&self, spec: ExecSpec) -> BoxFuture<'_, Result<ExecEvents, AgentFailure>> {
        self.host.commands.fetch_add(1, Ordering::SeqCst);
        let started = futures::stream::iter([Ok(ExecEvent::Started { pid: 1 })]);
        let events: ExecEvents = if spec.command == "sleep" {
            let running = KilledOnDrop(Arc::clone(&self.host.killed_commands));
            let never = futures::stream::once(async move {
                let _running = running;
                std::future::pending::<Result<ExecEvent, AgentFailure>>().await
            });
            Box::pin(started.chain(never))
        } else {
            let (said, complaint, code) = match self.run(&spec.command) {
                Ok(said) => (Bytes::from(said), Bytes::new(), 0),
                Err(code) => (Bytes::new(), Bytes::from_static(b"no"), code),
            };
            let output = ExecEvent::Output { stream: OutputStream::Stdout, data: said.clone() };
            let kept =
                |data: Bytes| Captured { total_bytes: data.len() as u64, head: data, tail: Bytes::new() };
            let exited = ExecEvent::Exited(ExecOutcome {
                exit_code: Some(code),
                stdout: kept(said),
                stderr: kept(complaint),
                // The time that a guest reports must not be trusted.
                duration: Duration::from_secs(1 << 40),
                ..ExecOutcome::default()
            });
            let (host, waits) = (Arc::clone(&self.host), spec.command == "wait");
            let told = futures::stream::once(async move {
                if waits {
                    host.go.notified().await;
                }
                Ok(output)
            });
            Box::pin(started.chain(told).chain(futures::stream::iter([Ok(exited)])))
        };
        async move { Ok(events) }.boxed()
    }

    fn read_file<'a>(
        &'a self,
        _path: &'a GuestPath,
        _offset: u64,
        _limit: u64,
    ) -> BoxFuture<'a, Result<FileContent, AgentFailure>> {
        async { Err(refused()) }.boxed()
    }

    fn write_file(&self, _file: WriteFile, _data: Bytes) -> BoxFuture<'_, Result<(), AgentFailure>> {
        async {
            match self.host.take_fault(Fault::WriteFails) {
                true => {
                    let message = "it was told to fail".to_owned();
                    Err(AgentFailure::Refused { code: GuestCode::NoSpace, message })
                }
                false => Ok(()),
            }
        }
        .boxed()
    }

    fn edit_file<'a>(
        &'a self,
        _path: &'a GuestPath,
        _old: &'a str,
        _new: &'a str,
        _replace_all: bool,
    ) -> BoxFuture<'a, Result<u64, AgentFailure>> {
        async { Err(refused()) }.boxed()
    }

    fn list_dir<'a>(
        &'a self,
        _path: &'a GuestPath,
        _options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<DirListing, AgentFailure>> {
        async { Err(refused()) }.boxed()
    }
}
