//! Tests for taking a workspace from a live session: by whom, after how long, and by which kind of adoption.

use std::time::{Duration, Instant};

use agentiso_core::address::Subnet;
use agentiso_core::ids::{SessionId, WorkspaceId};
use agentiso_core::names::WorkspaceRef;
use agentiso_core::resources::ResourceLimits;

use super::{Limits, Registry, SessionKind, from_ledger};
use crate::error::OpError;

/// A registry with one workspace whose owner is connected and made its last call at the instant given.
fn owned() -> (Registry, WorkspaceId, SessionId, Instant) {
    let text = include_str!("../../tests/fixtures/ledger-v4-snapshots.json");
    let limits = Limits {
        resources: ResourceLimits { max_vcpus: 8, max_memory_mb: 8192, max_disk_gb: 100 },
        max_workspaces: 50,
        max_total_vms: 100,
        subnet: Subnet { gateway: "10.42.0.1".parse().unwrap(), prefix: 16 },
    };
    let mut registry = from_ledger(&serde_json::from_str(text).unwrap(), limits);
    let (owner, start) = (SessionId::random(), Instant::now());
    let id = registry.iter().next().unwrap().id;
    registry.sessions.open(&owner, jiff::Timestamp::UNIX_EPOCH);
    registry.adopt(&id, &owner, SessionKind::Client, false, start).unwrap();
    registry.sessions.call_begins(&owner, start);
    registry.sessions.call_ends(&owner, start);
    (registry, id, owner, start)
}

fn another(registry: &mut Registry) -> SessionId {
    let id = SessionId::random();
    registry.sessions.open(&id, jiff::Timestamp::UNIX_EPOCH);
    id
}

#[test]
fn recently_active_session_keeps_its_workspaces() {
    let (mut registry, id, owner, start) = owned();
    let other = another(&mut registry);
    let early = start + Duration::from_secs(59);
    assert!(!registry.adoptable(&other, false, early).contains(&id));
    assert!(registry.adoptable(&other, true, early).contains(&id), "with force it is tried, and refused");
    for force in [false, true] {
        let refused = registry.adopt(&id, &other, SessionKind::Client, force, early).unwrap_err();
        assert!(matches!(refused, OpError::OwnerActive { idle_secs: 59, .. }), "{refused}");
    }
    assert_eq!(registry.get(&id).unwrap().owner, Some(owner));
}

#[test]
fn silent_connected_session_loses_nothing_without_force() {
    let (mut registry, id, owner, start) = owned();
    let other = another(&mut registry);
    let late = start + Duration::from_secs(600);
    assert!(!registry.adoptable(&other, false, late).contains(&id), "not in bulk");
    assert!(!registry.adoptable(&owner, true, late).contains(&id), "what is one's own is not adopted");
    let wanted = WorkspaceRef::Id(id);
    let adopted = registry.adopt(&id, &other, SessionKind::Client, false, late).unwrap_err();
    let destroyed = registry.find_destroyable(&wanted, &other, SessionKind::Client, false, late).unwrap_err();
    for refused in [adopted, destroyed] {
        assert!(matches!(refused, OpError::OwnerConnected { idle_secs: 600, .. }), "{refused}");
        assert!(refused.to_string().contains("600 s ago"), "{refused}");
    }
    assert!(registry.find_destroyable(&wanted, &other, SessionKind::Client, true, late).is_ok());
    registry.adopt(&id, &other, SessionKind::Client, true, late).unwrap();
    assert_eq!(registry.get(&id).unwrap().owner, Some(other));
}

#[test]
fn active_session_keeps_workspaces_even_against_force() {
    let (mut registry, id, _, start) = owned();
    let other = another(&mut registry);
    let (wanted, early) = (WorkspaceRef::Id(id), start + Duration::from_secs(20));
    for force in [false, true] {
        let refused =
            registry.find_destroyable(&wanted, &other, SessionKind::Client, force, early).unwrap_err();
        assert!(matches!(refused, OpError::OwnerActive { idle_secs: 20, .. }), "{refused}");
    }
}

#[test]
fn ghost_workspaces_can_be_taken_at_once() {
    let (mut registry, id, owner, start) = owned();
    let other = another(&mut registry);
    registry.sessions.close(&owner);
    assert!(registry.adoptable(&other, false, start).contains(&id));
    let wanted = WorkspaceRef::Id(id);
    assert!(registry.find_destroyable(&wanted, &other, SessionKind::Client, false, start).is_ok());
    registry.adopt(&id, &other, SessionKind::Client, false, start).unwrap();
}

#[test]
fn destroying_a_connected_team_needs_force() {
    let text = include_str!("../../tests/fixtures/ledger-v4-teams.json");
    let (mut registry, _, owner, start) = owned();
    let document: crate::ledger::LedgerDocument = serde_json::from_str(text).unwrap();
    registry.teams = document.teams;
    let other = another(&mut registry);
    let name = agentiso_core::team::TeamName::parse("web").unwrap();
    registry.teams.get_mut(&name).unwrap().owner = owner.clone();
    let late = start + Duration::from_secs(600);
    let refused = registry.own_team("web", &other, SessionKind::Client, false, late).unwrap_err();
    assert_eq!(refused.code(), "owner_connected");
    assert!(refused.to_string().contains("600 s ago"));
    let early = start + Duration::from_secs(20);
    let refused = registry.own_team("web", &other, SessionKind::Client, true, early).unwrap_err();
    assert_eq!(refused.code(), "owner_active");
    registry.own_team("web", &other, SessionKind::Client, true, late).unwrap();
    registry.sessions.close(&other);
    let third = another(&mut registry);
    registry.own_team("web", &third, SessionKind::Client, false, late).unwrap();
}
