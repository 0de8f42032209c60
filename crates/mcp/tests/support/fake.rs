//! Fake VMs in memory, which need no boot.
//!
//! A fork whose name begins with `stuck` never starts, one whose name begins with `unlucky` and ends in 2 fails, and so
//! does every workspace whose name contains `broken`.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_core::memory::HostMemory;
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use agentiso_daemon::vms::{
    About, Arrival, AttachFailure, BootFailure, Booted, Carried, CarryFailure, EraseFailure, Exported,
    GuestAgent, ImageFailure, ImageRef, Imported, OnSpawn, SizesOf, SnapshotFailure, SnapshotTaken, Stray,
    Target, Vm, VmRecord, VmSpec, Vms, VolumeSizes,
};
use agentiso_daemon::{HostFacts, Progress, Rung, SnapshotDiff, TemplateInfo};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::disk::Disks;
use super::guest::{FakeGuest, Waiting};
use super::local::Ports;

#[derive(Debug, Default)]
pub(crate) struct FakeVms {
    /// Number of commands and boots that wait.
    pub(crate) waiting: Arc<AtomicUsize>,
    pub(crate) disks: Disks,
    pub(crate) ports: Ports,
    /// Whether memory of snapshots cannot be restored.
    pub(crate) memory_is_lost: AtomicBool,
    /// Whether sizes of disks are unknown.
    pub(crate) sizes_are_unknown: AtomicBool,
}

impl FakeVms {
    /// Returns once exactly `count` commands and boots wait.
    pub(crate) async fn waiting_commands(&self, count: usize) {
        let seen = async {
            while self.waiting.load(Ordering::SeqCst) != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), seen).await.expect("commands that begin and end");
    }

    async fn boot(
        &self,
        spec: &VmSpec,
        has_memory: bool,
        spawned: OnSpawn,
        progress: &Progress,
    ) -> Result<Booted, BootFailure> {
        progress.report("booting", Some(0.5));
        if spec.identity.hostname.contains("broken") {
            return Err(BootFailure::Failed { reason: "it is broken".to_owned() });
        }
        let files = self.disks.files(spec.id);
        let guest = FakeGuest::new(files, self.waiting.clone(), spec.id, self.ports.clone());
        let vm = Arc::new(FakeVm {
            id: spec.id,
            disks: self.disks.clone(),
            agent: Arc::new(guest),
            off: watch::Sender::new(false),
        });
        spawned.tell(vm.record()).await?;
        progress.report("ready", Some(1.0));
        let lost = has_memory && self.memory_is_lost.load(Ordering::SeqCst);
        Ok(Booted {
            vm,
            rung: if has_memory && !lost { Rung::Memory } else { Rung::ImageTemplate },
            boot_time: Duration::from_millis(7),
            warning: lost.then(|| "its memory was taken on another host".to_owned()),
        })
    }
}

impl Vms for FakeVms {
    fn image(&self, name: &ImageName) -> Result<ImageRef, ImageFailure> {
        if name.as_str() == "debian-dev" {
            return Ok(ImageRef { name: name.clone(), id: "0".repeat(64), virtual_size: 1 << 30 });
        }
        Err(ImageFailure::Missing { name: name.clone(), known: vec!["debian-dev".to_owned()] })
    }

    fn create<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        self.boot(spec, false, spawned, progress).boxed()
    }

    fn start<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        self.boot(spec, false, spawned, progress).boxed()
    }

    fn restore<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        let has_memory = self.disks.restore(spec.id, snapshot);
        self.boot(spec, has_memory, spawned, progress).boxed()
    }

    fn branch<'a>(
        &'a self,
        source: &'a VmSpec,
        snapshot: SnapshotId,
        fork: &'a VmSpec,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        self.disks.branch(source.id, snapshot, fork.id);
        async { Ok(()) }.boxed()
    }

    fn create_branch<'a>(
        &'a self,
        fork: &'a VmSpec,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>> {
        async move {
            if fork.identity.hostname.starts_with("stuck") {
                let _waiting = Waiting::begin(&self.waiting);
                pending::<()>().await;
            }
            if fork.identity.hostname.starts_with("unlucky") && fork.identity.hostname.ends_with('2') {
                return Err(BootFailure::Failed { reason: "it had no luck".to_owned() });
            }
            self.boot(fork, self.disks.branch_has_memory(fork.id), spawned, progress).await
        }
        .boxed()
    }

    fn export<'a>(
        &'a self,
        _branch: &'a VmSpec,
        _about: &'a About,
        _target: &'a Target,
        _progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Exported, CarryFailure>> {
        async { Err(no_files()) }.boxed()
    }

    fn look<'a>(&'a self, _file: &'a Path) -> BoxFuture<'a, Result<Carried, CarryFailure>> {
        async { Err(no_files()) }.boxed()
    }

    fn import<'a>(
        &'a self,
        _spec: &'a VmSpec,
        _arrival: Arrival<'a>,
        _progress: &'a Progress,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Imported, CarryFailure>> {
        async { Err(no_files()) }.boxed()
    }

    fn delete_snapshot<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move { self.disks.delete(spec.id, snapshot) }.boxed()
    }

    fn diff<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
        _cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>> {
        async move { Ok(self.disks.diff(spec.id, snapshot)) }.boxed()
    }

    fn settle<'a>(
        &'a self,
        _: &'a VmSpec,
        _: &'a [SnapshotId],
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async { Ok(()) }.boxed()
    }

    fn is_alive(&self, _: &VmRecord) -> bool {
        false
    }

    fn attach<'a>(
        &'a self,
        _: &'a VmSpec,
        _: &'a VmRecord,
    ) -> BoxFuture<'a, Result<Arc<dyn Vm>, AttachFailure>> {
        async { Err(AttachFailure::Gone) }.boxed()
    }

    fn halt<'a>(&'a self, _: &'a VmSpec, _: Option<&'a VmRecord>) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }

    fn erase<'a>(&'a self, spec: &'a VmSpec) -> BoxFuture<'a, Result<(), EraseFailure>> {
        self.disks.erase(spec.id);
        // The description goes with the workspace.
        let _ = std::fs::remove_dir_all(&spec.data_dir);
        async { Ok(()) }.boxed()
    }

    fn strays(&self) -> Vec<Stray> {
        Vec::new()
    }

    fn end_stray<'a>(&'a self, _: &'a Stray) -> BoxFuture<'a, Result<(), String>> {
        async { Ok(()) }.boxed()
    }

    fn stray_ended<'a>(&'a self, _: &'a VmRecord) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }

    fn prepare<'a>(&'a self, _: &'a ImageName, _: Resources) -> BoxFuture<'a, Result<(), BootFailure>> {
        async { Ok(()) }.boxed()
    }

    fn templates(&self) -> Vec<TemplateInfo> {
        Vec::new()
    }

    fn volume_usage(&self, spec: &VmSpec, _of: SizesOf) -> Option<VolumeSizes> {
        (!self.sizes_are_unknown.load(Ordering::SeqCst)).then(|| self.disks.usage(spec.id))
    }

    fn bytes_while_copying(&self, memory_bytes: u64) -> u64 {
        memory_bytes
    }

    fn host_memory(&self) -> Option<HostMemory> {
        None
    }

    fn facts(&self) -> BoxFuture<'_, Result<HostFacts, BootFailure>> {
        async { Err(BootFailure::HostUnfit { reason: "a fake has no facts".to_owned() }) }.boxed()
    }
}

#[derive(Debug)]
struct FakeVm {
    id: WorkspaceId,
    disks: Disks,
    agent: Arc<FakeGuest>,
    off: watch::Sender<bool>,
}

impl FakeVm {
    fn end() -> String {
        "it was switched off".to_owned()
    }
}

impl Vm for FakeVm {
    fn record(&self) -> VmRecord {
        VmRecord { pid: i32::MAX, start_time: 1, boot_id: "fake".to_owned() }
    }

    fn agent(&self) -> Arc<dyn GuestAgent> {
        self.agent.clone()
    }

    fn snapshot<'a>(
        &'a self,
        snapshot: SnapshotId,
        include_memory: bool,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<SnapshotTaken, SnapshotFailure>> {
        async move {
            progress.report("copying", Some(0.5));
            self.disks.snapshot(self.id, snapshot, include_memory);
            progress.report("saved", Some(1.0));
            Ok(SnapshotTaken { pause: Duration::from_millis(3) })
        }
        .boxed()
    }

    fn delete_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        async move { self.disks.delete(self.id, snapshot) }.boxed()
    }

    fn diff<'a>(
        &'a self,
        snapshot: SnapshotId,
        _cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>> {
        async move { Ok(self.disks.diff(self.id, snapshot)) }.boxed()
    }

    fn settle<'a>(&'a self, _: &'a [SnapshotId]) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async { Ok(()) }.boxed()
    }

    fn tidy<'a>(&'a self, _: &'a CancellationToken) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async { Ok(()) }.boxed()
    }

    fn identify<'a>(&'a self, _: &'a VmSpec) -> BoxFuture<'a, Result<(), BootFailure>> {
        async { Ok(()) }.boxed()
    }

    fn stalled(&self) -> BoxFuture<'static, String> {
        pending().boxed()
    }

    fn go_on(&self) -> BoxFuture<'_, Result<Option<String>, SnapshotFailure>> {
        async { Ok(None) }.boxed()
    }

    fn exited(&self) -> BoxFuture<'static, String> {
        let mut off = self.off.subscribe();
        async move {
            if off.wait_for(|off| *off).await.is_err() {
                pending::<()>().await;
            }
            Self::end()
        }
        .boxed()
    }

    fn shutdown(&self, _: Duration) -> BoxFuture<'_, String> {
        self.off.send_replace(true);
        async { Self::end() }.boxed()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        self.off.send_replace(true);
        async {}.boxed()
    }
}

/// These tests export no workspaces to files.
fn no_files() -> CarryFailure {
    CarryFailure::Failed { reason: "there are no files here".to_owned() }
}
