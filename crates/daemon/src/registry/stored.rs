//! From the registry to the ledger's form and back.

use std::collections::{BTreeMap, HashSet};

use agentiso_core::ids::{SessionId, WorkspaceId};
use agentiso_core::lifecycle::Phase;
use thiserror::Error;

use super::entry::{Status, Workspace};
use super::table::{Limits, Registry};
use crate::ledger::{Counters, LedgerDocument, SCHEMA_VERSION, StoredImage, StoredSession, StoredWorkspace};
use crate::machines::ImageRef;

/// A ledger that parses and still cannot be true.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum Contradiction {
    #[error("two workspaces are named {0}")]
    Name(String),
    #[error("two workspaces have the address {0}")]
    Address(std::net::Ipv4Addr),
    #[error("two workspaces share the run directory {0}")]
    ShortId(String),
}

pub(crate) fn to_ledger(registry: &Registry, now: jiff::Timestamp) -> LedgerDocument {
    let mut owned: BTreeMap<&SessionId, Vec<WorkspaceId>> = BTreeMap::new();
    for workspace in registry.iter() {
        if let Some(owner) = &workspace.owner {
            owned.entry(owner).or_default().push(workspace.id);
        }
    }
    let sessions = owned.into_iter().map(|(id, workspace_ids)| StoredSession {
        session_id: id.clone(),
        workspace_ids,
        created_at: registry.sessions.created_at(id).unwrap_or(now),
    });
    LedgerDocument {
        schema_version: SCHEMA_VERSION,
        saved_at: now,
        workspaces: registry.iter().map(|w| (w.id, stored(w))).collect(),
        sessions: sessions.collect(),
        teams: serde_json::Map::new(),
        counters: Counters {
            last_address: registry.addresses.last(),
            workspaces_created: registry.created_total,
        },
    }
}

fn stored(workspace: &Workspace) -> StoredWorkspace {
    StoredWorkspace {
        name: workspace.name.clone(),
        phase: workspace.status.phase(),
        machine: workspace.status.machine().cloned(),
        stop_reason: workspace.status.stop_reason().map(str::to_owned),
        image: StoredImage {
            name: workspace.image.name.clone(),
            id: workspace.image.id.clone(),
            virtual_size: workspace.image.virtual_size,
        },
        resources: workspace.resources,
        ip: workspace.address,
        network: workspace.network.clone(),
        created_at: workspace.created_at,
        rung: workspace.rung,
    }
}

pub(crate) fn from_ledger(document: &LedgerDocument, limits: Limits) -> Result<Registry, Contradiction> {
    let (mut names, mut addresses, mut shorts) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (id, workspace) in &document.workspaces {
        if !names.insert(&workspace.name) {
            return Err(Contradiction::Name(workspace.name.to_string()));
        }
        if !addresses.insert(workspace.ip) {
            return Err(Contradiction::Address(workspace.ip));
        }
        if !shorts.insert(id.short()) {
            return Err(Contradiction::ShortId(id.short()));
        }
    }
    let mut registry = Registry::new(limits);
    registry.created_total = document.counters.workspaces_created;
    for (id, workspace) in &document.workspaces {
        let owner = document.sessions.iter().find(|session| session.workspace_ids.contains(id));
        registry.insert_restored(restored(*id, workspace, owner.map(|session| session.session_id.clone())));
    }
    if let Some(last) = document.counters.last_address {
        registry.addresses.resume_after(last);
    }
    for session in &document.sessions {
        registry.sessions.restore_ghost(&session.session_id, session.created_at);
    }
    Ok(registry)
}

fn restored(id: WorkspaceId, stored: &StoredWorkspace, owner: Option<SessionId>) -> Workspace {
    let machine = stored.machine.clone();
    let lost = || Status::Stopped { reason: Some("the ledger did not name its process".to_owned()) };
    let status = match (stored.phase, machine) {
        (Phase::Creating, machine) => Status::Creating { machine },
        (Phase::Starting, machine) => Status::Starting { machine },
        (Phase::Destroying, machine) => Status::Destroying { machine },
        (Phase::Running, Some(machine)) => Status::Running { machine },
        (Phase::Stopping, Some(machine)) => Status::Stopping { machine },
        (Phase::Running | Phase::Stopping, None) => lost(),
        (Phase::Stopped, _) => Status::Stopped { reason: stored.stop_reason.clone() },
    };
    Workspace {
        id,
        name: stored.name.clone(),
        image: ImageRef {
            name: stored.image.name.clone(),
            id: stored.image.id.clone(),
            virtual_size: stored.image.virtual_size,
        },
        resources: stored.resources,
        address: stored.ip,
        network: stored.network.clone(),
        created_at: stored.created_at,
        owner,
        status,
        rung: stored.rung,
    }
}
