//! Reserves forks and protects snapshots that have forks.

use agentiso_core::ids::{SessionId, SnapshotId, WorkspaceId};
use agentiso_core::lifecycle::Operation;
use agentiso_core::memory::HostMemory;
use agentiso_core::names::{SnapshotName, WorkspaceName, WorkspaceRef};
use agentiso_core::quota::{SESSION_QUOTA, Usage};

use super::entry::{Lifetime, Workspace};
use super::sessions::SessionKind;
use super::snapshots::Snapshots;
use super::table::{Registry, Wanted};
use crate::error::OpError;
use crate::info::{ForkedFrom, NetworkInfo};

/// A request for forks of one snapshot.
#[derive(Clone, Debug)]
pub(crate) struct WantedForks<'a> {
    pub(crate) source: &'a WorkspaceRef,
    pub(crate) snapshot: &'a SnapshotName,
    /// One name for each fork; `None` stands for a generated name.
    pub(crate) names: Vec<Option<WorkspaceName>>,
    pub(crate) created_at: jiff::Timestamp,
    pub(crate) lifetime: Lifetime,
}

/// Reserved forks, and the workspace and snapshot they are made from.
#[derive(Debug)]
pub(crate) struct ReservedForks {
    pub(crate) source_name: WorkspaceName,
    pub(crate) snapshot: SnapshotId,
    /// In the order of the names. A name that is taken fails its own fork only.
    pub(crate) forks: Vec<Result<Workspace, OpError>>,
}

impl Registry {
    /// Takes names, addresses and quota for all forks whose names are free, or nothing at all. Memory is not
    /// promised yet: [`Registry::promise_memory`] does that.
    pub(crate) fn reserve_forks(
        &mut self,
        wanted: WantedForks<'_>,
        session: &SessionId,
        kind: SessionKind,
    ) -> Result<ReservedForks, OpError> {
        kind.refuse_inside()?;
        let source = self.find_owned(wanted.source, session, kind)?.clone();
        source.accept(Operation::UseSnapshots)?;
        let snapshot = source.snapshots.find(&source.name, wanted.snapshot)?.clone();
        let is_taken = |name: &Option<WorkspaceName>| name.as_ref().is_some_and(|name| self.is_named(name));
        let count = wanted.names.iter().filter(|name| !is_taken(name)).count() as u64;
        self.admit_workspaces(count)?;
        self.admit_vms(count)?;
        if kind == SessionKind::Client {
            let one = Usage::of(&source.resources);
            let all = Usage {
                workspaces: count,
                memory_mb: one.memory_mb.saturating_mul(count),
                disk_gb: one.disk_gb.saturating_mul(count),
            };
            self.usage(session).reserve(all, SESSION_QUOTA)?;
        }
        let origin = ForkedFrom {
            source_workspace_id: source.id,
            source_workspace_name: source.name.clone(),
            snapshot_name: snapshot.name.clone(),
            snapshot_id: snapshot.id,
        };
        let mut forks: Vec<Result<Workspace, OpError>> = Vec::new();
        for name in wanted.names {
            let fork = Wanted {
                place: None,
                name,
                image: source.image.clone(),
                resources: source.resources,
                // A port of the host leads to one workspace only, so forks inherit no forwards.
                network: NetworkInfo { port_forwards: Vec::new(), ..source.network.clone() },
                created_at: wanted.created_at,
                lifetime: wanted.lifetime,
            };
            match self.insert(fork, session, Some(origin.clone())) {
                Err(OpError::NoAddress(full)) => {
                    for made in forks.into_iter().flatten() {
                        self.remove(&made.id);
                    }
                    return Err(OpError::NoAddress(full));
                }
                made => {
                    self.waiting_forks.extend(made.as_ref().map(|workspace| workspace.id));
                    forks.push(made);
                }
            }
        }
        Ok(ReservedForks { source_name: source.name, snapshot: snapshot.id, forks })
    }

    /// Promises memory to a fork that is about to boot.
    pub(crate) fn promise_memory(
        &mut self,
        id: &WorkspaceId,
        memory: Option<HostMemory>,
    ) -> Result<(), OpError> {
        if let Some(workspace) = self.get(id) {
            self.admit_memory(workspace.resources.memory_mb, memory)?;
        }
        self.waiting_forks.remove(id);
        Ok(())
    }

    /// Removes a snapshot from the registry unless it has forks. Returns the snapshots as they were before.
    pub(crate) fn remove_snapshot(
        &mut self,
        id: &WorkspaceId,
        snapshot: &SnapshotId,
    ) -> Result<Snapshots, OpError> {
        let workspace = self.find(&WorkspaceRef::Id(*id))?;
        let before = workspace.snapshots.clone();
        if let Some(doomed) = before.get(snapshot) {
            let forks = self.forks_of(snapshot);
            if !forks.is_empty() {
                let (name, snapshot) = (workspace.name.clone(), doomed.name.clone());
                return Err(OpError::SnapshotInUse { name, snapshot, forks });
            }
        }
        self.update(id, |workspace| drop(workspace.snapshots.remove(snapshot)));
        Ok(before)
    }
}
