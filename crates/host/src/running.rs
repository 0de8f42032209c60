//! A running VM as its workspace uses it: the process together with its disk.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_sys::Progress;
use agentiso_vm::{BootFailure, GuestAgent, SnapshotDiff, SnapshotFailure, SnapshotTaken, VmRecord, VmSpec};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::hypervisor::Hypervisor;
use crate::vm::Vm;

#[derive(Debug)]
pub struct RunningVm {
    hypervisor: Hypervisor,
    spec: VmSpec,
    vm: Vm,
}

impl RunningVm {
    pub fn new(hypervisor: &Hypervisor, spec: &VmSpec, vm: Vm) -> Self {
        Self { hypervisor: hypervisor.clone(), spec: spec.clone(), vm }
    }
}

impl agentiso_vm::Vm for RunningVm {
    fn record(&self) -> VmRecord {
        self.vm.record().clone()
    }

    fn agent(&self) -> Arc<dyn GuestAgent> {
        Arc::new(self.vm.clone())
    }

    fn snapshot<'a>(
        &'a self,
        snapshot: SnapshotId,
        include_memory: bool,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<SnapshotTaken, SnapshotFailure>> {
        async move {
            let (spec, vm) = (&self.spec, &self.vm);
            let taken = self.hypervisor.snapshot(spec, vm, snapshot, include_memory, progress).await;
            Ok(SnapshotTaken { pause: taken? })
        }
        .boxed()
    }

    fn delete_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        async move {
            self.hypervisor.delete_snapshot(&self.spec, Some(&self.vm), snapshot).await?;
            Ok(())
        }
        .boxed()
    }

    fn diff<'a>(
        &'a self,
        snapshot: SnapshotId,
        cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>> {
        async move { Ok(self.hypervisor.diff(&self.spec, Some(&self.vm), snapshot, cancelled).await?) }
            .boxed()
    }

    fn settle<'a>(&'a self, known: &'a [SnapshotId]) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            self.hypervisor.settle(&self.spec, Some(&self.vm), known).await?;
            Ok(())
        }
        .boxed()
    }

    fn tidy<'a>(&'a self, interrupted: &'a CancellationToken) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            self.hypervisor.tidy(&self.spec, &self.vm, interrupted).await?;
            Ok(())
        }
        .boxed()
    }

    fn shorten(&self) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        async move {
            self.hypervisor.shorten(&self.spec, &self.vm).await?;
            Ok(())
        }
        .boxed()
    }

    fn identify<'a>(&'a self, spec: &'a VmSpec) -> BoxFuture<'a, Result<(), BootFailure>> {
        async move { Ok(self.hypervisor.identify(spec, &self.vm).await?) }.boxed()
    }

    fn stalled(&self) -> BoxFuture<'static, String> {
        let vm = self.vm.clone();
        async move { vm.stalled().await }.boxed()
    }

    fn go_on(&self) -> BoxFuture<'_, Result<Option<String>, SnapshotFailure>> {
        async move { Ok(self.hypervisor.go_on(&self.spec, &self.vm).await?) }.boxed()
    }

    fn exited(&self) -> BoxFuture<'static, String> {
        let vm = self.vm.clone();
        async move { vm.exited().await.to_string() }.boxed()
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, String> {
        async move { self.vm.shutdown(grace).await.to_string() }.boxed()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        async move { drop(self.vm.kill().await) }.boxed()
    }
}
