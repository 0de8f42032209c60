//! One VM of the fake host.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_daemon::vms::{BootFailure, GuestAgent, SnapshotFailure, SnapshotTaken, Vm, VmRecord, VmSpec};
use agentiso_daemon::{Progress, SnapshotDiff};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::guest::FakeGuest;
use super::host::{FakeHost, Fault, snapshot_failed};
use super::volume::Volume;

#[derive(Debug)]
pub(crate) struct FakeVm {
    pub(crate) host: Arc<FakeHost>,
    pub(crate) record: VmRecord,
    pub(crate) data_dir: PathBuf,
    pub(crate) exit: watch::Receiver<Option<String>>,
}

impl Vm for FakeVm {
    fn record(&self) -> VmRecord {
        self.record.clone()
    }

    fn agent(&self) -> Arc<dyn GuestAgent> {
        Arc::new(FakeGuest {
            host: Arc::clone(&self.host),
            pid: self.record.pid,
            data_dir: self.data_dir.clone(),
        })
    }

    fn snapshot<'a>(
        &'a self,
        snapshot: SnapshotId,
        include_memory: bool,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<SnapshotTaken, SnapshotFailure>> {
        async move {
            self.host.snapshots_begun.fetch_add(1, Ordering::SeqCst);
            let takes = *self.host.snapshot_takes.lock().unwrap();
            tokio::time::sleep(takes).await;
            if self.host.take_fault(Fault::SnapshotFails) {
                return Err(snapshot_failed("it was told to fail"));
            }
            let memory = include_memory.then(|| self.host.memory(self.record.pid));
            self.host.change_volume(&self.data_dir, |volume| volume.freeze(snapshot, memory))?;
            if self.host.take_fault(Fault::SnapshotFailsHalfway) {
                return Err(snapshot_failed("it was told to fail halfway"));
            }
            Ok(SnapshotTaken { pause: Duration::from_millis(7) })
        }
        .boxed()
    }

    fn delete_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        async move { self.host.delete_snapshot(&self.data_dir, snapshot).await }.boxed()
    }

    fn diff<'a>(
        &'a self,
        snapshot: SnapshotId,
        _cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>> {
        async move { self.host.diff(&self.data_dir, snapshot) }.boxed()
    }

    fn settle<'a>(&'a self, known: &'a [SnapshotId]) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move { self.host.settle(&self.data_dir, known) }.boxed()
    }

    fn tidy<'a>(&'a self, interrupted: &'a CancellationToken) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        let read = Volume::load(&self.data_dir).filter(|_| self.host.take_fault(Fault::TidyingTakesLong));
        let Some(volume) = read else { return async { Ok(()) }.boxed() };
        let directory = self.data_dir.clone();
        // Begun work continues even if it is not awaited; in the real implementation it also runs on threads.
        let interrupted = interrupted.clone();
        self.host.hanging.notify_one();
        let done = tokio::spawn(async move {
            interrupted.cancelled().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            volume.save(&directory);
        });
        async move { done.await.map_err(|error| snapshot_failed(&error.to_string())) }.boxed()
    }

    fn identify<'a>(&'a self, spec: &'a VmSpec) -> BoxFuture<'a, Result<(), BootFailure>> {
        async move {
            if self.host.take_fault(Fault::IdentifyFails) {
                return Err(BootFailure::Failed { reason: "it was told to fail".to_owned() });
            }
            self.host.identify(self.record.pid, &spec.identity.hostname);
            Ok(())
        }
        .boxed()
    }

    fn stalled(&self) -> BoxFuture<'static, String> {
        self.host.stalled(self.record.pid)
    }

    fn go_on(&self) -> BoxFuture<'_, Result<Option<String>, SnapshotFailure>> {
        async move { Ok(self.host.go_on(self.record.pid)) }.boxed()
    }

    fn exited(&self) -> BoxFuture<'static, String> {
        let mut exit = self.exit.clone();
        async move {
            let ended = exit.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            match ended {
                Some(text) => text,
                None => std::future::pending().await,
            }
        }
        .boxed()
    }

    fn shutdown(&self, _grace: Duration) -> BoxFuture<'_, String> {
        async move {
            let takes = *self.host.shutdown_takes.lock().unwrap();
            tokio::time::sleep(takes).await;
            self.host.kill(self.record.pid, "powered off");
            "powered off".to_owned()
        }
        .boxed()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        async move {
            let takes = *self.host.kill_takes.lock().unwrap();
            tokio::time::sleep(takes).await;
            self.host.kill(self.record.pid, "killed");
        }
        .boxed()
    }
}
