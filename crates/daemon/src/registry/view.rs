//! Builds the view of registry entries that clients get.

use std::collections::BTreeMap;

use agentiso_core::ids::{SessionId, SnapshotId};

use super::entry::Workspace;
use super::table::Registry;
use crate::info::{NetworkTrouble, SnapshotInfo, WorkspaceInfo};

impl Registry {
    /// The client's view of a workspace, for the given session. It lacks what only the network knows.
    pub(crate) fn info(&self, workspace: &Workspace, viewer: &SessionId) -> WorkspaceInfo {
        let phase = workspace.status.phase();
        WorkspaceInfo {
            id: workspace.id,
            name: workspace.name.clone(),
            state: phase.public(),
            phase,
            base_image: workspace.image.name.clone(),
            ip: workspace.address,
            resources: workspace.resources,
            owned: workspace.owner.as_ref() == Some(viewer),
            owner: workspace.owner.clone(),
            network: workspace.network.clone(),
            network_trouble: NetworkTrouble::default(),
            snapshots: self.snapshot_infos(workspace),
            forked_from: workspace.forked_from.clone(),
            team: self.teams.team_of(&workspace.id).map(|(team, _)| team.clone()),
            created_at: workspace.created_at,
            disk_used_bytes: None,
            disk_volsize_bytes: None,
            stop_reason: workspace
                .out_of_reach
                .as_deref()
                .or(workspace.status.stop_reason())
                .map(str::to_owned),
            pid: workspace.status.vm().map(|vm| vm.pid),
            rung: workspace.rung,
        }
    }

    fn snapshot_infos(&self, workspace: &Workspace) -> Vec<SnapshotInfo> {
        let snapshots = &workspace.snapshots;
        if snapshots.iter().next().is_none() {
            return Vec::new();
        }
        let mut forks = self.forks();
        snapshots
            .iter()
            .map(|snapshot| SnapshotInfo {
                id: snapshot.id,
                name: snapshot.name.clone(),
                has_memory: snapshot.has_memory,
                parent: snapshot.parent.and_then(|id| Some(snapshots.get(&id)?.name.clone())),
                created_at: snapshot.created_at,
                used_bytes: None,
                referenced_bytes: None,
                current: snapshots.current() == Some(snapshot.id),
                forks: forks.remove(&snapshot.id).unwrap_or_default(),
            })
            .collect()
    }

    /// The names of the forks of every snapshot that has any, including forks that are being made.
    fn forks(&self) -> BTreeMap<SnapshotId, Vec<String>> {
        let mut forks: BTreeMap<SnapshotId, Vec<String>> = BTreeMap::new();
        for workspace in self.iter() {
            if let Some(from) = &workspace.forked_from {
                forks.entry(from.snapshot_id).or_default().push(workspace.name.to_string());
            }
        }
        forks.values_mut().for_each(|names| names.sort());
        forks
    }

    pub(super) fn forks_of(&self, snapshot: &SnapshotId) -> Vec<String> {
        self.forks().remove(snapshot).unwrap_or_default()
    }
}
