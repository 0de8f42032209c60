//! Takes, deletes, compares and restores snapshots, and gives one to a fork.
//!
//! The registry says which snapshots exist, and the volume may have more, never fewer: a snapshot is taken in the
//! volume first and entered last, and deleted from the registry first and from the volume last. A crash or failure
//! between the two is repaired by [`Runner::settle_volume`] before the next step: a snapshot that the registry
//! lacks is removed if it is listed as being removed, or if the volume marks it as possibly unfinished. Otherwise
//! it is entered under another name.

use std::sync::Arc;

use agentiso_core::ids::SnapshotId;
use agentiso_core::names::SnapshotName;
use tokio_util::sync::CancellationToken;

use super::steps::BootKind;
use super::task::Runner;
use crate::error::OpError;
use crate::fault;
use crate::handle::{Live, RestoreOutcome, Taken};
use crate::registry::{Listing, Status, Workspace};
use crate::vms::{Origin, Progress, SizesOf, SnapshotDiff, SnapshotFailure, Vm, VmSpec, VolumeSizes};

/// The volume, compared with the ledger.
#[derive(Clone, Copy, Debug)]
pub(super) enum Volume {
    /// They agree.
    Settled,
    /// They may differ; the volume is settled before the next step on it.
    Unsettled(Listing),
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Runner {
    pub(super) async fn snapshot(
        &mut self,
        name: SnapshotName,
        include_memory: bool,
        progress: Progress,
    ) -> Result<Taken, OpError> {
        let vm = self.vm().ok_or_else(|| self.attaching())?;
        self.settle_volume().await?;
        let memory_bytes = if include_memory { u64::from(self.spec.resources.memory_mb) * MIB } else { 0 };
        self.may_snapshot(&name, memory_bytes).await?;
        let space = self.shared.vms.host_space();
        let taken_meanwhile = self.shared.vms.bytes_while_copying(memory_bytes);
        let _promise = self.shared.space.promise(space, taken_meanwhile)?;
        fault::point("snapshot.begun");
        let id = SnapshotId::random();
        let taken = match vm.snapshot(id, include_memory, &progress).await {
            Ok(taken) => taken,
            Err(source) => {
                self.unsettle();
                return Err(self.snapshot_failed(format!("taking snapshot {name}"), source));
            }
        };
        fault::point("snapshot.taken");
        let before = self.shared.update(&self.id, |workspace| {
            let before = workspace.snapshots.clone();
            workspace.snapshots.add(id, name.clone(), include_memory, jiff::Timestamp::now());
            before
        });
        if let Err(error) = self.shared.save().await {
            self.shared.update(&self.id, |workspace| workspace.snapshots = before.unwrap_or_default());
            // A snapshot that is not in the ledger does not exist; its space is freed here or with the next step.
            if let Err(failure) = vm.delete_snapshot(id).await {
                tracing::warn!(workspace = %self.name, %failure, "cannot remove a snapshot that was not saved in the ledger; will retry");
                self.unsettle();
            }
            return Err(OpError::Ledger(error));
        }
        fault::point("snapshot.ledgered");
        tracing::info!(workspace = %self.name, snapshot = %name, pause = ?taken.pause, include_memory, "snapshot taken");
        Ok(Taken { id, pause: taken.pause })
    }

    /// Whether the registry, and the disk limit of the workspace, have room for one more. The size of a copy of a VM's
    /// memory is known only when it is made. A copy that does not fit would stop the guest, so the whole memory must
    /// fit.
    async fn may_snapshot(&self, name: &SnapshotName, memory_bytes: u64) -> Result<(), OpError> {
        let limit = self.shared.config.resources.max_snapshots_per_workspace;
        if let Some(workspace) = self.shared.workspace(&self.id) {
            workspace.snapshots.admit(&self.name, name, limit)?;
        }
        let limit_bytes = u64::from(self.spec.resources.disk_gb) * GIB;
        match self.volume_usage().await {
            Some(VolumeSizes { charged_bytes, .. })
                if charged_bytes.saturating_add(memory_bytes) > limit_bytes =>
            {
                let (name, used_bytes) = (self.name.clone(), charged_bytes);
                Err(OpError::DiskQuota { name, used_bytes, memory_bytes, limit_bytes })
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn volume_usage(&self) -> Option<VolumeSizes> {
        let (vms, spec) = (Arc::clone(&self.shared.vms), self.spec.clone());
        tokio::task::spawn_blocking(move || vms.volume_usage(&spec, SizesOf::NoSnapshot))
            .await
            .unwrap_or_default()
    }

    /// Ends the VM, if there is one, and boots from the snapshot. On a failure the workspace is stopped, with the
    /// reason.
    pub(super) async fn restore(
        &mut self,
        snapshot: SnapshotId,
        progress: Progress,
    ) -> Result<RestoreOutcome, OpError> {
        self.settle_volume().await?;
        let name = self.name_of(snapshot)?;
        let before = self.status();
        let record = before.vm().cloned();
        let memory = self.shared.vms.host_memory();
        self.shared.change(|registry| {
            // A running VM frees its memory before the next one takes it.
            if record.is_none() {
                registry.admit_memory(self.spec.resources.memory_mb, memory)?;
            }
            registry.update(&self.id, |workspace| {
                workspace.status = Status::Restoring { snapshot, vm: record.clone() };
            });
            Ok::<_, OpError>(())
        })?;
        if let Err(error) = self.shared.save().await {
            self.shared.set_status(&self.id, before);
            return Err(OpError::Ledger(error));
        }
        fault::point("restore.ledgered");
        if let Live::Up(vm) = self.live.send_replace(Live::Down) {
            vm.kill().await;
        }
        self.shared.vms.halt(&self.spec, record.as_ref()).await;
        fault::point("restore.halted");
        self.renew_attachment().await;
        let hook = self.spawn_hook(BootKind::Restore, move |vm| Status::Restoring { snapshot, vm: Some(vm) });
        let restored = match self.shared.vms.restore(&self.spec, snapshot, hook, &progress).await {
            Ok(booted) => {
                fault::point("restore.booted");
                let outcome = RestoreOutcome { rung: booted.rung, warning: booted.warning.clone() };
                self.come_up(booted).await.map(|()| outcome)
            }
            Err(failure) => {
                // The disk may have been switched before the VM failed.
                self.record_origin().await;
                self.unsettle();
                Err(OpError::boot(&self.name, failure))
            }
        };
        match &restored {
            Ok(outcome) => {
                fault::point("restore.saved");
                tracing::info!(workspace = %self.name, snapshot = %name, rung = ?outcome.rung, "restored");
            }
            Err(error) => {
                let reason = format!("snapshot {name} could not be restored: {error}");
                self.fall_back_to_stopped(reason).await;
            }
        }
        restored
    }

    pub(super) async fn delete_snapshot(&mut self, snapshot: SnapshotId) -> Result<(), OpError> {
        self.settle_volume().await?;
        let name = self.name_of(snapshot)?;
        let vm = self.vm_if_up()?;
        // Under one lock with the reservation of forks: a fork reserved later does not find the snapshot.
        let before = self.shared.change(|registry| registry.remove_snapshot(&self.id, &snapshot))?;
        if let Err(error) = self.shared.save().await {
            self.shared.update(&self.id, |workspace| workspace.snapshots = before);
            return Err(OpError::Ledger(error));
        }
        fault::point("delete.ledgered");
        let removed = match &vm {
            Some(vm) => vm.delete_snapshot(snapshot).await,
            None => self.shared.vms.delete_snapshot(&self.spec, snapshot).await,
        };
        fault::point("delete.removed");
        removed.map_err(|source| {
            self.unsettle();
            self.snapshot_failed(format!("freeing the space of the deleted snapshot {name}"), source)
        })?;
        self.forget_removed(&[snapshot]);
        Ok(())
    }

    /// Forgets snapshots whose files are gone. The ledger gets this with its next save: until then it lists them as
    /// being removed, which is harmless.
    fn forget_removed(&self, gone: &[SnapshotId]) {
        self.shared.update(&self.id, |workspace| workspace.snapshots.removed(gone));
    }

    /// Ends soon when it is cancelled, with any result.
    pub(super) async fn diff(
        &mut self,
        snapshot: SnapshotId,
        cancelled: &CancellationToken,
    ) -> Result<SnapshotDiff, OpError> {
        self.settle_volume().await?;
        let name = self.name_of(snapshot)?;
        let compared = match self.vm_if_up()? {
            Some(vm) => vm.diff(snapshot, cancelled).await,
            None => self.shared.vms.diff(&self.spec, snapshot, cancelled).await,
        };
        compared.map_err(|source| self.snapshot_failed(format!("comparing with snapshot {name}"), source))
    }

    pub(super) async fn branch(&mut self, snapshot: SnapshotId, fork: &VmSpec) -> Result<(), OpError> {
        self.settle_volume().await?;
        let name = self.name_of(snapshot)?;
        let branched = self.shared.vms.branch(&self.spec, snapshot, fork).await;
        branched.map_err(|source| self.snapshot_failed(format!("forking snapshot {name}"), source))
    }

    /// Brings the volume in line with the ledger, if they may differ.
    pub(super) async fn settle_volume(&mut self) -> Result<(), OpError> {
        match self.volume {
            Volume::Settled => Ok(()),
            Volume::Unsettled(listing) => {
                let vm = self.vm_if_up()?;
                self.settle_with(vm.as_ref(), listing).await
            }
        }
    }

    /// The same with the given VM, if there is one, published or not.
    pub(super) async fn settle_with(
        &mut self,
        vm: Option<&Arc<dyn Vm>>,
        listing: Listing,
    ) -> Result<(), OpError> {
        self.enter_found_snapshots(listing).await?;
        let (known, removing) = self.shared.workspace(&self.id).map_or_else(Default::default, |workspace| {
            (workspace.snapshots.ids(), workspace.snapshots.removing().to_vec())
        });
        let settled = match vm {
            Some(vm) => vm.settle(&known).await,
            None => self.shared.vms.settle(&self.spec, &known).await,
        };
        settled.map_err(|source| self.snapshot_failed("cleaning up the disk".to_owned(), source))?;
        self.forget_removed(&removing);
        self.volume = Volume::Settled;
        Ok(())
    }

    /// Enters snapshots that the disk has and the registry lacks, unless a record marks them for removal. They are
    /// in the ledger before the volume is settled, because settling removes unlisted snapshots: if the disk cannot
    /// be listed, nothing may be settled.
    async fn enter_found_snapshots(&self, listing: Listing) -> Result<(), OpError> {
        let (vms, spec) = (Arc::clone(&self.shared.vms), self.spec.clone());
        let listed = tokio::task::spawn_blocking(move || vms.disk_snapshots(&spec)).await;
        let listed = listed.map_err(|_| OpError::ShuttingDown)?;
        let failed = |source| self.snapshot_failed("listing the snapshots on the disk".to_owned(), source);
        let Some(on_disk) = listed.map_err(failed)? else { return Ok(()) };
        let now = jiff::Timestamp::now();
        let enter = |workspace: &mut Workspace| workspace.snapshots.enter_found(&on_disk, listing, now);
        let entered = self.shared.update(&self.id, enter).unwrap_or_default();
        if entered.is_empty() {
            return Ok(());
        }
        for name in &entered {
            tracing::warn!(workspace = %self.name, snapshot = %name, "its disk has a snapshot that the ledger did not list; it was added");
        }
        self.shared.save().await.map_err(OpError::Ledger)
    }

    /// Records which snapshot the disk descends from after an interrupted restore.
    pub(super) async fn record_origin(&self) {
        let (vms, spec) = (Arc::clone(&self.shared.vms), self.spec.clone());
        let origin = tokio::task::spawn_blocking(move || vms.origin(&spec)).await.unwrap_or_default();
        let origin = match origin {
            Some(Origin::Snapshot(id)) => Some(id),
            Some(Origin::Beginning) => None,
            None => return,
        };
        self.shared.update(&self.id, |workspace| workspace.snapshots.descend_from(origin));
    }

    pub(super) fn unsettle(&mut self) {
        if let Volume::Settled = self.volume {
            self.volume = Volume::Unsettled(Listing::Complete);
        }
    }

    /// The VM of a running workspace; `None` if it is down and its disk may be touched.
    fn vm_if_up(&self) -> Result<Option<Arc<dyn Vm>>, OpError> {
        match (self.vm(), self.status().vm()) {
            (Some(vm), _) => Ok(Some(vm)),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(self.attaching()),
        }
    }

    pub(super) fn name_of(&self, snapshot: SnapshotId) -> Result<SnapshotName, OpError> {
        let workspace = self.shared.workspace(&self.id);
        let found = workspace.and_then(|w| Some(w.snapshots.get(&snapshot)?.name.clone()));
        found.ok_or_else(|| OpError::snapshot_gone(&self.name, &snapshot))
    }

    /// The error for a VM that runs and is not published.
    pub(super) fn attaching(&self) -> OpError {
        OpError::StillAttaching { name: self.name.clone() }
    }

    fn snapshot_failed(&self, operation: String, source: SnapshotFailure) -> OpError {
        OpError::Snapshot { name: self.name.clone(), operation, source }
    }
}
