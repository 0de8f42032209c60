//! Converts the registry to the form of the ledger and back.

use std::collections::BTreeMap;

use agentiso_core::ids::{SessionId, WorkspaceId};
use agentiso_core::lifecycle::Phase;
use agentiso_http::TokenHash;

use super::entry::{Lifetime, Status, Workspace};
use super::snapshots::{Snapshot, Snapshots};
use super::table::{Limits, Registry};
use crate::ledger::{
    Counters, LedgerDocument, SCHEMA_VERSION, StoredImage, StoredSession, StoredSnapshot, StoredWorkspace,
};
use crate::vms::ImageRef;

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
        // The store counts its saves.
        revision: 0,
        workspaces: registry.iter().map(|w| (w.id, stored(w))).collect(),
        sessions: sessions.collect(),
        teams: registry.teams.clone(),
        counters: Counters {
            last_address: registry.addresses.last(),
            workspaces_created: registry.created_total,
        },
        mended: registry.mended.clone(),
    }
}

fn stored(workspace: &Workspace) -> StoredWorkspace {
    StoredWorkspace {
        name: workspace.name.clone(),
        phase: workspace.status.phase(),
        vm: workspace.status.vm().cloned(),
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
        snapshots: workspace.snapshots.iter().map(stored_snapshot).collect(),
        removing: workspace.snapshots.removing().to_vec(),
        current: workspace.snapshots.current(),
        restoring: match &workspace.status {
            Status::Restoring { snapshot, .. } => Some(*snapshot),
            Status::Creating { .. }
            | Status::Running { .. }
            | Status::Stopping { .. }
            | Status::Stopped { .. }
            | Status::Starting { .. }
            | Status::Suspended { .. }
            | Status::Destroying { .. } => None,
        },
        forked_from: workspace.forked_from.clone(),
        bridge_token: workspace.bridge_token.map(|hash| hash.to_string()),
        one_call: workspace.lifetime == Lifetime::OneCall,
    }
}

fn stored_snapshot(snapshot: &Snapshot) -> StoredSnapshot {
    StoredSnapshot {
        id: snapshot.id,
        name: snapshot.name.clone(),
        parent: snapshot.parent,
        has_memory: snapshot.has_memory,
        created_at: snapshot.created_at,
    }
}

fn restored_snapshot(stored: &StoredSnapshot) -> Snapshot {
    Snapshot {
        id: stored.id,
        name: stored.name.clone(),
        parent: stored.parent,
        has_memory: stored.has_memory,
        created_at: stored.created_at,
    }
}

/// Contradictions between entries must have been resolved before.
pub(crate) fn from_ledger(document: &LedgerDocument, limits: Limits) -> Registry {
    let mut registry = Registry::new(limits);
    registry.created_total = document.counters.workspaces_created;
    registry.teams = document.teams.clone();
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
    registry.mended = document.mended.clone();
    registry
}

pub(crate) fn restored(id: WorkspaceId, stored: &StoredWorkspace, owner: Option<SessionId>) -> Workspace {
    let vm = stored.vm.clone();
    let lost = || Status::Stopped { reason: Some("the ledger did not record its process".to_owned()) };
    let status = match (stored.phase, vm) {
        (Phase::Restoring, vm) => match stored.restoring {
            Some(snapshot) => Status::Restoring { snapshot, vm },
            None => Status::Starting { vm },
        },
        (Phase::Suspended, Some(vm)) => Status::Suspended {
            vm,
            reason: stored.stop_reason.clone().unwrap_or_else(|| "the host's disk is full".to_owned()),
        },
        (Phase::Creating, vm) => Status::Creating { vm },
        (Phase::Starting, vm) => Status::Starting { vm },
        (Phase::Destroying, vm) => Status::Destroying { vm },
        (Phase::Running, Some(vm)) => Status::Running { vm },
        (Phase::Stopping, Some(vm)) => Status::Stopping { vm },
        (Phase::Running | Phase::Stopping | Phase::Suspended, None) => lost(),
        (Phase::Stopped, _) => Status::Stopped { reason: stored.stop_reason.clone() },
    };
    let snapshots = stored.snapshots.iter().map(restored_snapshot).collect();
    let (snapshots, mended) = Snapshots::mended(snapshots, stored.current, stored.removing.clone());
    for line in mended {
        tracing::error!(workspace = %stored.name, "the ledger was inconsistent and was repaired: {line}");
    }
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
        snapshots,
        forked_from: stored.forked_from.clone(),
        // An unreadable token opens nothing.
        bridge_token: stored.bridge_token.as_deref().and_then(TokenHash::parse),
        lifetime: if stored.one_call { Lifetime::OneCall } else { Lifetime::Lasting },
        out_of_reach: None,
    }
}

#[cfg(test)]
mod tests {
    use agentiso_core::address::Subnet;
    use agentiso_core::config::RateLimitConfig;
    use agentiso_core::rate::RateCategory;
    use agentiso_core::resources::ResourceLimits;

    use super::*;

    fn limits() -> Limits {
        Limits {
            resources: ResourceLimits { max_vcpus: 8, max_memory_mb: 8192, max_disk_gb: 100 },
            max_workspaces: 50,
            max_total_vms: 100,
            subnet: Subnet { gateway: "10.42.0.1".parse().unwrap(), prefix: 16 },
        }
    }

    fn fixture() -> LedgerDocument {
        let text = include_str!("../../tests/fixtures/ledger-v4-snapshots.json");
        let document: LedgerDocument = serde_json::from_str(text).unwrap();
        LedgerDocument { schema_version: SCHEMA_VERSION, ..document }
    }

    #[test]
    fn snapshots_and_lineage_survive_the_ledger() {
        let document = fixture();
        let registry = from_ledger(&document, limits());
        assert_eq!(to_ledger(&registry, document.saved_at), document);
        let viewer = SessionId::shell();
        let infos: Vec<_> = registry.iter().map(|workspace| registry.info(workspace, &viewer)).collect();
        assert_eq!(infos[0].snapshots[1].forks, ["idea-1"]);
        assert_eq!(infos[0].snapshots[1].parent.as_ref().unwrap().as_str(), "clean");
        assert_eq!((infos[1].phase, infos[2].phase), (Phase::Restoring, Phase::Suspended));
        assert_eq!(infos[2].stop_reason.as_deref(), Some("the host's disk is full"));
    }

    #[test]
    fn lifetimes_and_members_survive_the_ledger() {
        let text = include_str!("../../tests/fixtures/ledger-v4-teams.json");
        let document: LedgerDocument = serde_json::from_str(text).unwrap();
        let registry = from_ledger(&document, limits());
        let lifetimes: Vec<_> = registry.iter().map(|workspace| workspace.lifetime).collect();
        assert_eq!(lifetimes, [Lifetime::Lasting, Lifetime::OneCall]);
        let (_, team) = registry.teams.find("web").unwrap();
        let in_hand: Vec<_> = team.members.iter().map(|member| member.on_board).collect();
        assert_eq!(in_hand, [true, false]);
        assert_eq!((team.members[0].stored_messages.len(), team.members[1].stored_messages.len()), (1, 0));
        assert_eq!(team.members[1].stored_tasks.pending.len(), 1);
        // Every field of the older form is as it was written, except the mail, which is stored separately.
        let mut again = serde_json::to_value(to_ledger(&registry, document.saved_at)).unwrap();
        assert_eq!(again.as_object_mut().unwrap().remove("revision"), Some(serde_json::json!(0)));
        again["schema_version"] = serde_json::json!(4);
        let mut written: serde_json::Value = serde_json::from_str(text).unwrap();
        for member in written["teams"]["web"]["members"].as_array_mut().unwrap() {
            let member = member.as_object_mut().unwrap();
            member.remove("mail");
            member.remove("tasks");
        }
        assert_eq!(again, written);
    }

    #[test]
    fn restart_refills_rate_limits() {
        let (config, document) = (RateLimitConfig::default(), fixture());
        let now = document.saved_at;
        let mut registry = from_ledger(&document, limits());
        while registry.rates.charge(RateCategory::Create, 1, &config, now).is_ok() {}
        let mut stored = serde_json::to_value(to_ledger(&registry, now)).unwrap();
        assert_eq!(stored["counters"].get("rates"), None);
        // An earlier version stored them; they are ignored.
        stored["counters"]["rates"] = serde_json::json!({ "create": "9999-01-01T00:00:00Z" });
        let mut registry = from_ledger(&serde_json::from_value(stored).unwrap(), limits());
        assert_eq!(registry.rates.charge(RateCategory::Create, 1, &config, now), Ok(()));
    }

    #[test]
    fn contradictory_snapshots_cost_no_workspace() {
        let mut document = fixture();
        for workspace in document.workspaces.values_mut() {
            workspace.restoring = None;
            if let Some(last) = workspace.snapshots.last().cloned() {
                workspace.snapshots.push(last);
            }
            workspace.snapshots.iter_mut().for_each(|snapshot| snapshot.parent = Some(snapshot.id));
        }
        let registry = from_ledger(&document, limits());
        let phases: Vec<_> = registry.iter().map(|workspace| workspace.status.phase()).collect();
        assert_eq!(phases, [Phase::Running, Phase::Starting, Phase::Suspended]);
        let counts: Vec<_> = registry.iter().map(|workspace| workspace.snapshots.ids().len()).collect();
        assert_eq!(counts, [2, 1, 0]);
        assert!(registry.iter().flat_map(|workspace| workspace.snapshots.iter()).all(|s| s.parent.is_none()));
    }
}
