//! A guest that knows two commands: `sleep`, which never ends, and everything else, which is echoed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agentiso_core::paths::GuestPath;
use agentiso_daemon::machines::{ExecEvents, GuestAgent, GuestCode};
use agentiso_daemon::{
    AgentFailure, Captured, DirListing, ExecEvent, ExecOutcome, ExecSpec, FileContent, OutputStream,
    WriteFile,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};

#[derive(Debug)]
pub(crate) struct FakeGuest {
    pub(crate) killed: Arc<AtomicU64>,
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
        let started = futures::stream::iter([Ok(ExecEvent::Started { pid: 1 })]);
        let events: ExecEvents = if spec.command == "sleep" {
            let running = KilledOnDrop(Arc::clone(&self.killed));
            let never = futures::stream::once(async move {
                let _running = running;
                std::future::pending::<Result<ExecEvent, AgentFailure>>().await
            });
            Box::pin(started.chain(never))
        } else {
            let said = Bytes::from(spec.command.into_bytes());
            let output = ExecEvent::Output { stream: OutputStream::Stdout, data: said.clone() };
            let stdout = Captured { total_bytes: said.len() as u64, head: said, tail: Bytes::new() };
            let exited =
                ExecEvent::Exited(ExecOutcome { exit_code: Some(0), stdout, ..ExecOutcome::default() });
            Box::pin(started.chain(futures::stream::iter([Ok(output), Ok(exited)])))
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
        async { Err(refused()) }.boxed()
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

    fn list_dir<'a>(&'a self, _path: &'a GuestPath) -> BoxFuture<'a, Result<DirListing, AgentFailure>> {
        async { Err(refused()) }.boxed()
    }
}
