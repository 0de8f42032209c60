//! The largest ledger and the largest descriptions that clients and guests can bring about are far smaller than the
//! largest that can be read.

use std::collections::BTreeMap;

use agentiso_core::config::{Config, UserDirs};
use agentiso_core::ids::{SessionId, SnapshotId, WorkspaceId};
use agentiso_core::names::{MAX_NAME_LEN, SnapshotName, WorkspaceName};
use agentiso_core::network::{MAX_RULES, NetworkPolicy, PolicyChange};
use agentiso_core::team::{MAX_MEMBER_TEXT, NewMember, NewTeam, RoleName, TeamLimits, TeamName, Teams};
use jiff::Timestamp;

use super::description::{DescribedWorkspace, Description, Holds, MAX_DESCRIPTION_BYTES, TeamDescription};
use super::file::MAX_LEDGER_BYTES;
use super::schema::{LedgerDocument, StoredSnapshot, StoredWorkspace};
use crate::info::{MAX_FORWARDS, PortForward};

/// A character that takes six bytes in JSON.
const ESCAPED: &str = "\u{1}";

fn config() -> Config {
    let dirs = UserDirs { uid: 1000, home: "/".into(), state_home: None, runtime_dir: None };
    Config::parse("", &dirs).unwrap()
}

/// A policy with as many rules as there may be, which together are nearly as long as they may be.
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
    full
}

fn member(team: &TeamName, number: u32) -> NewMember {
    let role = RoleName::parse(&format!("r{number:063}")).unwrap();
    NewMember {
        workspace: team.member_workspace(&role, 7).unwrap(),
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

#[test]
fn the_largest_ledger_is_far_below_the_limit() {
    let resources = config().resources;
    let text = include_str!("../../tests/fixtures/ledger-v4-snapshots.json");
    let mut document: LedgerDocument = serde_json::from_str(text).unwrap();
    let template = document.workspaces.values().next().unwrap().clone();
    let full = (0..resources.max_workspaces as usize).map(|number| {
        (WorkspaceId::random(), workspace(&template, number, resources.max_snapshots_per_workspace))
    });
    document.workspaces = full.collect::<BTreeMap<_, _>>();
    document.teams = teams(resources.max_total_vms);
    let size = serde_json::to_vec_pretty(&document).unwrap().len() as u64;
    assert!(size < MAX_LEDGER_BYTES / 2, "{size}");
}

#[test]
fn the_largest_descriptions_are_far_below_the_limit() {
    /// More cannot be configured.
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
