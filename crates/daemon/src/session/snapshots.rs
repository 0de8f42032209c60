//! Operations of a session on the snapshots of one workspace.

use agentiso_core::ids::SnapshotId;
use agentiso_core::lifecycle::Operation;
use agentiso_core::names::{SnapshotName, WorkspaceRef};

use super::Session;
use crate::error::OpError;
use crate::handle::{Answer, Handle, Request};
use crate::info::{Restored, SnapshotInfo, SnapshotMade, WorkspaceInfo};
use crate::registry::Workspace;
use crate::vms::{Progress, SizesOf, SnapshotDiff, VolumeSizes};

impl Session {
    /// Takes a snapshot of a running workspace, which runs on. The snapshot is durable when this returns. Dropping the
    /// future does not stop it.
    pub async fn snapshot(
        &self,
        wanted: &WorkspaceRef,
        name: SnapshotName,
        include_memory: bool,
        progress: &Progress,
    ) -> Result<SnapshotMade, OpError> {
        let _call = self.begin_call();
        let (workspace, handle) = self.accepted(wanted, Operation::Snapshot)?;
        let limit = self.shared().config.resources.max_snapshots_per_workspace;
        // The runner checks again; this only avoids waiting for it when the refusal is certain.
        workspace.snapshots.admit(&workspace.name, &name, limit)?;
        let request = Request::Snapshot { name, include_memory, progress: progress.clone() };
        let Answer::Taken(taken) = self.ask(&workspace, handle, request).await? else {
            unreachable!("a snapshot is answered with what was taken")
        };
        let (workspace, snapshot) = self.snapshot_of(&workspace, taken.id)?;
        Ok(SnapshotMade { workspace, snapshot, pause: taken.pause })
    }

    /// The snapshots with their sizes, oldest first.
    pub async fn snapshots(&self, wanted: &WorkspaceRef) -> Result<Vec<SnapshotInfo>, OpError> {
        Ok(self.info(wanted).await?.snapshots)
    }

    /// Restores a workspace to a snapshot and starts it. Changes that are in no snapshot are lost; no snapshot is.
    pub async fn restore(
        &self,
        wanted: &WorkspaceRef,
        name: &SnapshotName,
        progress: &Progress,
    ) -> Result<Restored, OpError> {
        let _call = self.begin_call();
        let (workspace, handle, snapshot) = self.accepted_snapshot(wanted, name, Operation::Restore)?;
        let request = Request::Restore { snapshot, progress: progress.clone() };
        let Answer::Restored(back) = self.ask(&workspace, handle, request).await? else {
            unreachable!("a restore is answered with its outcome")
        };
        let (workspace, snapshot) = self.snapshot_of(&workspace, snapshot)?;
        Ok(Restored { workspace, snapshot, rung: back.rung, warning: back.warning })
    }

    /// Deletes a snapshot that has no forks; returns what it was.
    pub async fn delete_snapshot(
        &self,
        wanted: &WorkspaceRef,
        name: &SnapshotName,
    ) -> Result<SnapshotInfo, OpError> {
        let _call = self.begin_call();
        let (workspace, handle, snapshot) = self.accepted_snapshot(wanted, name, Operation::UseSnapshots)?;
        let (_, info) = self.measured_snapshot_of(&workspace, snapshot).await?;
        self.ask(&workspace, handle, Request::DeleteSnapshot { snapshot }).await?;
        Ok(info)
    }

    /// Compares the workspace with one of its snapshots.
    pub async fn diff_snapshot(
        &self,
        wanted: &WorkspaceRef,
        name: &SnapshotName,
        progress: &Progress,
    ) -> Result<SnapshotDiff, OpError> {
        let _call = self.begin_call();
        let (workspace, handle, snapshot) = self.accepted_snapshot(wanted, name, Operation::UseSnapshots)?;
        progress.report("comparing the disk with the snapshot", None);
        let Answer::Compared(diff) = self.ask(&workspace, handle, Request::Diff { snapshot }).await? else {
            unreachable!("a comparison is answered with its result")
        };
        Ok(diff)
    }

    pub(super) fn accepted_snapshot(
        &self,
        wanted: &WorkspaceRef,
        name: &SnapshotName,
        operation: Operation,
    ) -> Result<(Workspace, Option<Handle>, SnapshotId), OpError> {
        self.refuse_when_closing()?;
        let state = self.shared().state();
        let workspace = state.registry.find_owned(wanted, self.id(), self.kind())?;
        let snapshot = workspace.snapshots.find(&workspace.name, name)?.id;
        workspace.accept(operation)?;
        Ok((workspace.clone(), state.runners.get(&workspace.id).cloned(), snapshot))
    }

    /// Returns the snapshot with its sizes. All layers of the volume are read for that.
    pub(super) async fn measured_snapshot_of(
        &self,
        workspace: &Workspace,
        id: SnapshotId,
    ) -> Result<(WorkspaceInfo, SnapshotInfo), OpError> {
        let (workspace_info, mut snapshot) = self.snapshot_of(workspace, id)?;
        if let Some(usage) = self.volume_usage(workspace, SizesOf::Snapshot(id)).await {
            fill_in(&mut snapshot, &usage);
        }
        Ok((workspace_info, snapshot))
    }

    /// The views of a workspace and of one of its snapshots.
    fn snapshot_of(
        &self,
        workspace: &Workspace,
        id: SnapshotId,
    ) -> Result<(WorkspaceInfo, SnapshotInfo), OpError> {
        let info = self.info_of(workspace)?;
        let found = info.snapshots.iter().find(|snapshot| snapshot.id == id).cloned();
        let snapshot = found.ok_or_else(|| OpError::snapshot_gone(&workspace.name, &id))?;
        Ok((info, snapshot))
    }
}

pub(super) fn fill_in(snapshot: &mut SnapshotInfo, usage: &VolumeSizes) {
    if let Some(sizes) = usage.snapshots.get(&snapshot.id) {
        snapshot.used_bytes = Some(sizes.used_bytes);
        snapshot.referenced_bytes = Some(sizes.referenced_bytes);
    }
}
