//! Tests that the largest ledger and the largest descriptions that clients and guests can cause can be read again.

use std::collections::BTreeMap;

use agentiso_core::config::{
    Config, MAX_LEDGER_BYTES, MEMBER_BYTES, SNAPSHOT_BYTES, UserDirs, WORKSPACE_BYTES, largest_ledger,
};
use agentiso_core::ids::{SessionId, SnapshotId, WorkspaceId};
use agentiso_core::names::{MAX_NAME_LEN, SnapshotName, WorkspaceName};
use agentiso_core::network::{MAX_RULES, NetworkPolicy, PolicyChange};
use agentiso_core::team::{MAX_MEMBER_TEXT, NewMember, NewTeam, RoleName, TeamLimits, TeamName, Teams};
use jiff::Timestamp;

use super::description::{DescribedWorkspace, Description, Holds, MAX_DESCRIPTION_BYTES, TeamDescription};
use super::schema::{LedgerDocument, StoredSession, StoredSnapshot, StoredWorkspace};
use crate::info::{MAX_FORWARDS, PortForward};

/// A character that takes six bytes in JSON.
const ESCAPED: &str = "\u{1}";

fn config() -> Config {
    let dirs = UserDirs { uid: 1000, home: "/".into(), state_home: None, runtime_dir: None };
    Config::parse("", &dirs).unwrap()
}

/// A policy with the most rules allowed, which together are nearly as long as allowed.
fn policy() -> NetworkPolicy {
    let domain = |number: usize| format!("{number:04}{}.{}.example", "x".repeat(50), "y".repeat(35));
    let network = |third: usize, last: usize| format!("93.184.{third}.{last}:443");
    let change = PolicyChange {
        allow_internet: Some(true),
        allowed_ports: Some((0..MAX_RULES as i64).map(|port| 60_000 + port % 5_000).collect()),
        allow_domains: Some((0..MAX_RULES).map(domain).collect()),
        deny_domains: Some((MAX_RULES..2 * MAX_RULES).map(domain).collect()),
        allow_cidrs: Some((0..MAX_RULES).map(|last| network(1, last)).collect()),
        deny_cidrs: Some((0..MAX_RULES).map(|last| network(2, last)).collect()),
        ..PolicyChange::default()
    };
    let policy = change.apply_to(&NetworkPolicy::default()).unwrap();
    policy.check_length().unwrap();
    policy
}

fn workspace(template: &StoredWorkspace, number: usize, snapshots: u32) -> StoredWorkspace {
    let mut full = template.clone();
    let name = |number: usize| format!("{number:06}{}", "n".repeat(MAX_NAME_LEN - 6));
    full.name = WorkspaceName::parse(&name(number)).unwrap();
    full.stop_reason = Some(ESCAPED.repeat(4096));
    full.network.policy = policy();
    full.network.port_forwards = vec![PortForward { host_port: 60_000, guest_port: 60_000 }; MAX_FORWARDS];
    full.snapshots = (0..snapshots as usize)
        .map(|number| StoredSnapshot {
            id: SnapshotId::random(),
            name: SnapshotName::parse(&name(number)).unwrap(),
            parent: Some(SnapshotId::random()),
            has_memory: true,
            created_at: Timestamp::MAX,
        })
        .collect();
    full.removing = full.snapshots.iter().map(|snapshot| snapshot.id).collect();
    full
}

fn member(team: &TeamName, number: u32) -> NewMember {
    let role = RoleName::parse(&format!("r{number:063}")).unwrap();
    NewMember {
        workspace: team.member_workspace(&role, 7),
        name: role,
        role: ESCAPED.repeat(MAX_MEMBER_TEXT - 50),
        skills: vec![ESCAPED.to_owned(); 50],
        description: None,
    }
}

fn teams(members: u32) -> Teams {
    let mut teams = Teams::default();
    for number in 0..members {
        let name = TeamName::parse(&format!("t{number:063}")).unwrap();
        let member = member(&name, number);
        let wanted = NewTeam {
            name,
            owner: SessionId::shell(),
            max_vms: 1,
            parent: None,
            roles: vec![member],
            created_at: Timestamp::MAX,
        };
        teams.reserve(wanted, TeamLimits { max_vms_per_team: 1, max_nesting_depth: 1 }).unwrap();
    }
    teams
}

/// The size of a ledger with so many workspaces, snapshots of each, and teams.
fn ledger_bytes(workspaces: usize, snapshots: u32, members: u32) -> u64 {
    let text = include_str!("../../tests/fixtures/ledger-v4-snapshots.json");
    let mut document: LedgerDocument = serde_json::from_str(text).unwrap();
    let template = document.workspaces.values().next().unwrap().clone();
    let full = (0..workspaces).map(|number| (WorkspaceId::random(), workspace(&template, number, snapshots)));
    document.workspaces = full.collect::<BTreeMap<_, _>>();
    document.sessions = document
        .workspaces
        .keys()
        .map(|id| StoredSession {
            session_id: SessionId::random(),
            workspace_ids: vec![*id],
            created_at: Timestamp::MAX,
        })
        .collect();
    document.teams = teams(members);
    serde_json::to_vec_pretty(&document).unwrap().len() as u64
}

#[test]
fn full_entries_fit_their_estimated_size() {
    let empty = ledger_bytes(0, 0, 0);
    let each = |workspaces, snapshots, members| ledger_bytes(workspaces, snapshots, members) - empty;
    let (workspace, member) = (each(1, 0, 0), each(0, 0, 1));
    assert!(workspace <= WORKSPACE_BYTES, "{workspace}");
    assert!(each(1, 100, 0) - workspace <= 100 * SNAPSHOT_BYTES);
    assert!(member <= MEMBER_BYTES, "{member}");
}

#[test]
fn largest_ledgers_of_every_configuration_can_be_read() {
    let resources = config().resources;
    let (workspaces, snapshots) = (resources.max_workspaces, resources.max_snapshots_per_workspace);
    assert!(largest_ledger(workspaces, snapshots) < MAX_LEDGER_BYTES / 100);
    let dirs = UserDirs { uid: 1000, home: "/".into(), state_home: None, runtime_dir: None };
    let configured = |snapshots: u32| {
        let pool = "[pool]\nenabled = false\n[resources]\nmax_workspaces = 10000\nmax_total_vms = 10000\n";
        Config::parse(&format!("{pool}max_snapshots_per_workspace = {snapshots}\n"), &dirs)
    };
    assert!(configured(100).is_ok());
    let refused = configured(10_000).unwrap_err().to_string();
    assert!(refused.contains("max_snapshots_per_workspace") && refused.contains("state file"), "{refused}");
}

#[test]
fn largest_descriptions_are_below_half_the_limit() {
    /// The largest number that can be configured.
    const MAX_SNAPSHOTS: u32 = 10_000;
    const MEMBERS: u32 = 100;
    let text = include_str!("../../tests/fixtures/ledger-v4-snapshots.json");
    let document: LedgerDocument = serde_json::from_str(text).unwrap();
    let entry = workspace(document.workspaces.values().next().unwrap(), 0, MAX_SNAPSHOTS);
    let holds = Holds::Workspace(Box::new(DescribedWorkspace { owner: None, entry }));
    let description = Description::new(WorkspaceId::random(), u64::MAX, holds);
    let size = serde_json::to_vec_pretty(&description).unwrap().len() as u64;
    assert!(size < MAX_DESCRIPTION_BYTES / 2, "{size}");

    let name = TeamName::parse(&"t".repeat(64)).unwrap();
    let wanted = NewTeam {
        name: name.clone(),
        owner: SessionId::shell(),
        max_vms: MEMBERS,
        parent: None,
        roles: (0..MEMBERS).map(|number| member(&name, number)).collect(),
        created_at: Timestamp::MAX,
    };
    let mut teams = Teams::default();
    teams.reserve(wanted, TeamLimits { max_vms_per_team: MEMBERS, max_nesting_depth: 1 }).unwrap();
    let team = teams.get(&name).unwrap().clone();
    let size = serde_json::to_vec_pretty(&TeamDescription::new(name, u64::MAX, team)).unwrap().len() as u64;
    assert!(size < MAX_DESCRIPTION_BYTES / 2, "{size}");
}
