//! A running QEMU process as an implementation of [`Machine`].

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
use crate::machines::{
    BootFailure, ExitReason, GuestAgent, Machine, MachineRecord, MachineSpec, Progress, SnapshotDiff,
    SnapshotFailure, SnapshotTaken,
};

#[derive(Debug)]
pub(super) struct QemuMachine {
    config: Arc<Config>,
    hypervisor: Hypervisor,
    spec: agentiso_host::MachineSpec,
    machine: agentiso_host::Machine,
}

impl QemuMachine {
    pub(super) fn new(
        config: &Arc<Config>,
        hypervisor: &Hypervisor,
        spec: agentiso_host::MachineSpec,
        machine: agentiso_host::Machine,
    ) -> Self {
        Self { config: Arc::clone(config), hypervisor: hypervisor.clone(), spec, machine }
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

impl Machine for QemuMachine {
    fn record(&self) -> MachineRecord {
        self.machine.record().clone()
    }

    fn agent(&self) -> Arc<dyn GuestAgent> {
        Arc::new(QemuAgent::new(self.machine.clone()))
    }

    fn snapshot<'a>(
        &'a self,
        snapshot: SnapshotId,
        include_memory: bool,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<SnapshotTaken, SnapshotFailure>> {
        async move {
            let (spec, machine) = (&self.spec, &self.machine);
            let taken = self.hypervisor.snapshot(spec, machine, snapshot, include_memory, progress).await;
            taken.map(|pause| SnapshotTaken { pause }).map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn delete_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        async move {
            let deleted = self.hypervisor.delete_snapshot(&self.spec, Some(&self.machine), snapshot).await;
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
            let diff = self.hypervisor.diff(&self.spec, Some(&self.machine), snapshot, cancelled).await;
            diff.map(convert::diff).map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn settle<'a>(&'a self, known: &'a [SnapshotId]) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            let settled = self.hypervisor.settle(&self.spec, Some(&self.machine), known).await;
            settled.map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn tidy<'a>(&'a self, interrupted: &'a CancellationToken) -> BoxFuture<'a, Result<(), SnapshotFailure>> {
        async move {
            let tidied = self.hypervisor.tidy(&self.spec, &self.machine, interrupted).await;
            tidied.map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn shorten(&self) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        async move {
            let shortened = self.hypervisor.shorten(&self.spec, &self.machine).await;
            shortened.map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn identify<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), BootFailure>> {
        async move {
            let spec = convert::spec(&self.config, spec, OnSpawn::default());
            self.hypervisor.identify(&spec, &self.machine).await.map_err(convert::boot_failure)
        }
        .boxed()
    }

    fn stalled(&self) -> BoxFuture<'static, String> {
        let machine = self.machine.clone();
        async move { machine.stalled().await }.boxed()
    }

    fn go_on(&self) -> BoxFuture<'_, Result<Option<String>, SnapshotFailure>> {
        async move {
            self.hypervisor.go_on(&self.spec, &self.machine).await.map_err(convert::snapshot_failure)
        }
        .boxed()
    }

    fn exited(&self) -> BoxFuture<'static, ExitReason> {
        let machine = self.machine.clone();
        async move { exit_reason(&machine.exited().await) }.boxed()
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ExitReason> {
        async move { exit_reason(&self.machine.shutdown(grace).await) }.boxed()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        async move { drop(self.machine.kill().await) }.boxed()
    }
}
