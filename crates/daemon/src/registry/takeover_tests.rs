//! When a workspace of a live session may be taken from it: by whom, after how long, and by which kind of adoption.

use std::time::{Duration, Instant};

use agentiso_core::address::Subnet;
use agentiso_core::ids::{SessionId, WorkspaceId};
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
    let mut registry = from_ledger(&serde_json::from_str(text).unwrap(), limits).unwrap();
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
fn within_a_minute_of_its_last_call_nobody_takes_anything_from_a_live_session() {
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
fn after_a_minute_of_silence_it_is_taken_in_bulk_or_by_force_and_not_by_name_alone() {
    let (mut registry, id, owner, start) = owned();
    let other = another(&mut registry);
    let late = start + Duration::from_secs(60);
    assert!(registry.adoptable(&other, false, late).contains(&id), "in bulk without force");
    assert!(!registry.adoptable(&owner, true, late).contains(&id), "what is one's own is not adopted");
    let refused = registry.adopt(&id, &other, SessionKind::Client, false, late).unwrap_err();
    assert!(matches!(&refused, OpError::NotOwned { owner: Some(told), .. } if *told == owner), "{refused}");
    registry.adopt(&id, &other, SessionKind::Client, true, late).unwrap();
    assert_eq!(registry.get(&id).unwrap().owner, Some(other));
}
