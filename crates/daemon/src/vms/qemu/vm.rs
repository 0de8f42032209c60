//! A running QEMU process as an implementation of [`Vm`].

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::config::Config;
use agentiso_core::ids::SnapshotId;
use agentiso_host::{ExitCause, Hypervisor, OnSpawn};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::agent::QemuAgent;
use super::convert;
use crate::vms::{
    BootFailure, ExitReason, GuestAgent, Progress, SnapshotDiff, SnapshotFailure, SnapshotTaken, Vm,
    VmRecord, VmSpec,
};

#[derive(Debug)]
pub(super) struct QemuVm {
    config: Arc<Config>,
    hypervisor: Hypervisor,
    spec: agentiso_host::VmSpec,
    vm: agentiso_host::Vm,
}

impl QemuVm {
    pub(super) fn new(
        config: &Arc<Config>,
        hypervisor: &Hypervisor,
        spec: agentiso_host::VmSpec,
        vm: agentiso_host::Vm,
    ) -> Self {
        Self { config: Arc::clone(config), hypervisor: hypervisor.clone(), spec, vm }
    }
}

fn exit_reason(reason: &agentiso_host::ExitReason) -> ExitReason {
    let clean = match reason.cause {
        ExitCause::GuestShutdown | ExitCause::Quit => true,
        ExitCause::GuestReset
        | ExitCause::GuestPanic(_)
        | ExitCause::Killed
        | ExitCause::Signal(_)
        | ExitCause::Status(_)
        | ExitCause::Vanished => false,
    };
    ExitReason { clean, text: reason.to_string() }
}

impl Vm for QemuVm {
    fn record(&self) -> VmRecord {
        self.vm.record().clone()
    }

    fn agent(&self) -> Arc<dyn GuestAgent> {
        Arc::new(QemuAgent::new(self.vm.clone()))
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
            taken.map(|pause| SnapshotTaken { pause }).map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn delete_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        async move {
            let deleted = self.hypervisor.delete_snapshot(&self.spec, Some(&self.vm), snapshot).await;
            deleted.map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn diff<'a>(
        &'a self,
        snapshot: SnapshotId,
        cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>> {
        async move {
            let diff = self.hypervisor.diff(&self.spec, Some(&self.vm), snapshot, cancelled).await;
            diff.map(convert::diff).map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn settle<'a>(&'a self, known: &'a [SnapshotId]) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            let settled = self.hypervisor.settle(&self.spec, Some(&self.vm), known).await;
            settled.map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn tidy<'a>(&'a self, interrupted: &'a CancellationToken) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            let tidied = self.hypervisor.tidy(&self.spec, &self.vm, interrupted).await;
            tidied.map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn shorten(&self) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        async move {
            let shortened = self.hypervisor.shorten(&self.spec, &self.vm).await;
            shortened.map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn identify<'a>(&'a self, spec: &'a VmSpec) -> BoxFuture<'a, Result<(), BootFailure>> {
        async move {
            let spec = convert::spec(&self.config, spec, OnSpawn::default());
            self.hypervisor.identify(&spec, &self.vm).await.map_err(convert::boot_failure)
        }
        .boxed()
    }

    fn stalled(&self) -> BoxFuture<'static, String> {
        let vm = self.vm.clone();
        async move { vm.stalled().await }.boxed()
    }

    fn go_on(&self) -> BoxFuture<'_, Result<Option<String>, SnapshotFailure>> {
        async move { self.hypervisor.go_on(&self.spec, &self.vm).await.map_err(convert::snapshot_failure) }
            .boxed()
    }

    fn exited(&self) -> BoxFuture<'static, ExitReason> {
        let vm = self.vm.clone();
        async move { exit_reason(&vm.exited().await) }.boxed()
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ExitReason> {
        async move { exit_reason(&self.vm.shutdown(grace).await) }.boxed()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        async move { drop(self.vm.kill().await) }.boxed()
    }
}
