//! Tests for the decision which workspaces exist, and for writing and reading descriptions.

use std::path::PathBuf;

use agentiso_core::ids::{SessionId, SnapshotId, WorkspaceId};
use agentiso_core::lifecycle::Phase;
use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};
use agentiso_core::resources::Resources;
use agentiso_core::team::{Team, TeamName, TeamState};
use proptest::prelude::*;

use super::description::{
    Described, DescribedOwner, DescribedWorkspace, Description, Holds, Marker, TeamDescription, TeamKey,
};
use super::file::Found;
use super::gather::{Gathered, gather};
use super::quarantine::KeptContent;
use super::schema::{Counters, LedgerDocument, SCHEMA_VERSION, StoredImage, StoredSnapshot, StoredWorkspace};
use super::survey::{FoundTeam, FoundWorkspace, Survey};
use crate::vms::VmRecord;

fn now() -> jiff::Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn entry(name: &str, host: u8) -> StoredWorkspace {
    StoredWorkspace {
        name: WorkspaceName::parse(name).unwrap(),
        phase: Phase::Stopped,
        vm: None,
        stop_reason: None,
        image: StoredImage {
            name: ImageName::parse("debian-dev").unwrap(),
            id: "sha256:1".to_owned(),
            virtual_size: 1 << 30,
        },
        resources: Resources { vcpus: 1, memory_mb: 256, disk_gb: 4 },
        ip: [10, 42, 0, host].into(),
        network: Default::default(),
        created_at: now() + jiff::SignedDuration::from_secs(host.into()),
        rung: None,
        snapshots: Vec::new(),
        removing: Vec::new(),
        current: None,
        restoring: None,
        forked_from: None,
        bridge_token: None,
        one_call: false,
    }
}

fn ledger(revision: u64, entries: &[(WorkspaceId, StoredWorkspace)]) -> LedgerDocument {
    LedgerDocument {
        schema_version: SCHEMA_VERSION,
        saved_at: now(),
        revision,
        workspaces: entries.iter().cloned().collect(),
        sessions: Vec::new(),
        teams: Default::default(),
        counters: Counters::default(),
        mended: None,
    }
}

fn whole(revision: u64, entries: &[(WorkspaceId, StoredWorkspace)]) -> Found {
    Found::Whole(Box::new(ledger(revision, entries)))
}

fn unusable() -> Found {
    Found::Damaged { document: None, problems: vec!["a wrong byte".to_owned()] }
}

fn directory(id: WorkspaceId, described: Described<Description>) -> FoundWorkspace {
    FoundWorkspace { id, path: PathBuf::from(id.to_string()), described, marker: None, empty: false }
}

fn described(id: WorkspaceId, revision: u64, entry: StoredWorkspace) -> FoundWorkspace {
    let owner = Some(DescribedOwner { session_id: SessionId::shell(), created_at: now() });
    let holds = Holds::Workspace(Box::new(DescribedWorkspace { owner, entry }));
    directory(id, Described::Read(Description::new(id, revision, holds)))
}

fn survey(workspaces: Vec<FoundWorkspace>) -> Survey {
    Survey { workspaces, ..Survey::default() }
}

fn names(gathered: &Gathered) -> Vec<&str> {
    gathered.document.workspaces.values().map(|entry| entry.name.as_str()).collect()
}

#[test]
fn unusable_ledgers_are_rebuilt_from_the_directories() {
    let id = WorkspaceId::random();
    let gathered = gather(unusable(), survey(vec![described(id, 7, entry("web", 2))]), now());
    assert_eq!(names(&gathered), ["web"]);
    assert_eq!(gathered.document.sessions[0].workspace_ids, [id], "with its owner");
    assert_eq!(gathered.document.revision, 7, "the next save is newer than all there is");
    assert!(gathered.leftover.is_empty() && gathered.quarantine.workspaces.is_empty());
    assert_eq!(gathered.lines.len(), 2, "{:?}", gathered.lines);
}

#[test]
fn absent_ledgers_put_every_directory_into_quarantine() {
    let [web, undescribed] = [(); 2].map(|()| WorkspaceId::random());
    let found = vec![described(web, 7, entry("web", 2)), directory(undescribed, Described::Missing)];
    let gathered = gather(Found::Absent, survey(found), now());
    assert!(gathered.document.workspaces.is_empty() && gathered.leftover.is_empty());
    let kept = &gathered.quarantine.workspaces;
    assert!(matches!(kept[&web].content, KeptContent::Described(_)));
    assert!(matches!(kept[&undescribed].content, KeptContent::Undescribed));
}

#[test]
fn only_recorded_or_empty_directories_are_leftovers() {
    let ids: Vec<WorkspaceId> = (0..5).map(|_| WorkspaceId::random()).collect();
    let one_call = StoredWorkspace { one_call: true, ..entry("call", 2) };
    let creating = StoredWorkspace { phase: Phase::Creating, ..entry("half", 3) };
    let nobodys = |id, holds| directory(id, Described::Read(Description::new(id, 0, holds)));
    let found = || {
        survey(vec![
            nobodys(ids[0], Holds::Standby),
            nobodys(ids[1], Holds::Scratch),
            described(ids[2], 1, one_call.clone()),
            described(ids[3], 1, creating.clone()),
            FoundWorkspace { empty: true, ..directory(ids[4], Described::Missing) },
        ])
    };
    let gathered = gather(Found::Absent, found(), now());
    assert_eq!(gathered.leftover, ids.iter().copied().collect());
    assert!(gathered.quarantine.workspaces.is_empty());
    // With a ledger, unfinished workspaces are entered, and their runners finish or undo them.
    let gathered = gather(whole(1, &[]), found(), now());
    assert_eq!((gathered.leftover.len(), gathered.document.workspaces.len()), (3, 2));
}

#[test]
fn newer_of_ledger_and_description_wins() {
    let id = WorkspaceId::random();
    let listed = [(id, entry("ledger", 2))];
    for (revision, expected) in [(4, "ledger"), (5, "ledger"), (6, "directory")] {
        let found = survey(vec![described(id, revision, entry("directory", 2))]);
        let gathered = gather(whole(5, &listed), found, now());
        assert_eq!(names(&gathered), [expected]);
        // A description may lag behind its disk.
        assert_eq!(gathered.uncertain.contains(&id), expected == "directory");
    }
}

#[test]
fn incomplete_ledgers_are_completed_except_marked_directories() {
    let [web, db, kept] = [(); 3].map(|()| WorkspaceId::random());
    let marker = Marker { since: now(), reason: "somebody must look".to_owned() };
    let marked = |id, entry| FoundWorkspace { marker: Some(marker.clone()), ..described(id, 3, entry) };
    let found =
        vec![described(db, 3, entry("db", 3)), marked(kept, entry("kept", 4)), marked(web, entry("web", 2))];
    let gathered = gather(whole(9, &[(web, entry("web", 2))]), survey(found), now());
    let mut listed = names(&gathered);
    listed.sort();
    assert_eq!(listed, ["db", "web"]);
    assert_eq!(gathered.quarantine.workspaces[&kept].marker, marker);
    assert_eq!(
        gathered.recovered,
        [PathBuf::from(web.to_string())],
        "it was recovered, whatever the mark says"
    );
}

#[test]
fn unreadable_unknown_descriptions_are_quarantined() {
    let [web, damaged, newer] = [(); 3].map(|()| WorkspaceId::random());
    let found = || {
        survey(vec![
            directory(web, Described::Damaged("a wrong byte".to_owned())),
            directory(damaged, Described::Damaged("a wrong byte".to_owned())),
            directory(newer, Described::Newer(2)),
        ])
    };
    let listed = [(web, entry("web", 2)), (newer, entry("newer", 3))];
    let gathered = gather(whole(9, &listed), found(), now());
    assert_eq!(names(&gathered), ["web"]);
    assert_eq!((gathered.damaged.len(), gathered.uncertain.contains(&web)), (1, true));
    assert!(matches!(gathered.quarantine.workspaces[&newer].content, KeptContent::Newer(2)));
    assert_eq!(gathered.quarantine.workspaces.len(), 2);
    assert!(gathered.leftover.is_empty());
}

#[test]
fn older_workspace_keeps_a_contested_name_or_address() {
    let [older, twin, other] = [(); 3].map(|()| WorkspaceId::random());
    let listed = [(older, entry("web", 2)), (twin, entry("web", 3)), (other, entry("db", 4))];
    let mut same_address = entry("x", 5);
    same_address.ip = [10, 42, 0, 4].into();
    let late = WorkspaceId::random();
    let directories = listed.iter().map(|(id, entry)| described(*id, 9, entry.clone()));
    let found = survey(directories.chain([described(late, 1, same_address)]).collect());
    let gathered = gather(whole(9, &listed), found, now());
    let ids: Vec<_> = gathered.document.workspaces.keys().copied().collect();
    assert!(ids.len() == 2 && ids.contains(&older) && ids.contains(&other));
    let KeptContent::Described(kept) = &gathered.quarantine.workspaces[&twin].content else { panic!("lost") };
    assert_eq!(kept.entry, listed[1].1, "all that the ledger knew of it is kept");
    assert!(gathered.quarantine.workspaces[&late].marker.reason.contains("10.42.0.4"));
}

#[test]
fn workspace_without_directory_loses_its_contested_name() {
    let [old, running] = [(); 2].map(|()| WorkspaceId::random());
    // The ledger is an old one: it lists the first workspace of that name and not the second.
    let listed = [(old, entry("web", 2))];
    let found = survey(vec![described(running, 40, entry("web", 3))]);
    let gathered = gather(whole(9, &listed), found, now());
    assert_eq!(gathered.document.workspaces.keys().collect::<Vec<_>>(), [&running]);
    let kept = &gathered.quarantine.workspaces[&old];
    assert!(kept.marker.reason.contains("named web"), "{}", kept.marker.reason);
}

fn snapshot(name: &str) -> StoredSnapshot {
    StoredSnapshot {
        id: SnapshotId::random(),
        name: SnapshotName::parse(name).unwrap(),
        parent: None,
        has_memory: true,
        created_at: now(),
    }
}

#[test]
fn workspace_with_lost_snapshots_is_uncertain() {
    let id = WorkspaceId::random();
    let [kept, other] = ["kept", "other"].map(snapshot);
    let full = StoredWorkspace { snapshots: vec![kept.clone(), other.clone()], ..entry("web", 2) };
    // The id in the ledger differs.
    let wrong = StoredSnapshot { id: SnapshotId::random(), ..other.clone() };
    let changed = StoredWorkspace { snapshots: vec![kept.clone(), wrong], ..full.clone() };
    let lacking = StoredWorkspace { snapshots: vec![kept.clone()], ..full.clone() };
    let removing = StoredWorkspace { removing: vec![other.id], ..lacking.clone() };
    for (entry, lost) in [(changed, true), (lacking, true), (removing, false), (full.clone(), false)] {
        for revision in [4, 5] {
            let found = survey(vec![described(id, revision, full.clone())]);
            let gathered = gather(whole(5, &[(id, entry.clone())]), found, now());
            assert_eq!(gathered.document.workspaces[&id], entry, "the ledger counts");
            assert_eq!(gathered.uncertain.contains(&id), lost);
            assert_eq!(gathered.lines.len(), usize::from(lost), "{:?}", gathered.lines);
        }
    }
}

fn team(state: TeamState) -> Team {
    Team {
        state,
        created_at: now(),
        owner: SessionId::shell(),
        max_vms: 2,
        parent: None,
        members: Vec::new(),
    }
}

fn teams(state: TeamState, revision: u64) -> Survey {
    let name = TeamName::parse("web").unwrap();
    let described = Described::Read(TeamDescription::new(name.clone(), revision, team(state)));
    let key = TeamKey { name, created_at: now() };
    let found = FoundTeam { path: PathBuf::from(format!("teams/{key}")), key, described, marker: None };
    Survey { teams: vec![found], ..Survey::default() }
}

#[test]
fn teams_are_rebuilt_like_workspaces() {
    let name = TeamName::parse("web").unwrap();
    for found in [unusable(), whole(9, &[])] {
        let gathered = gather(found, teams(TeamState::Ready, 3), now());
        assert_eq!(gathered.document.teams.get(&name), Some(&team(TeamState::Ready)));
    }
    let gathered = gather(Found::Absent, teams(TeamState::Ready, 3), now());
    assert!(gathered.document.teams.is_empty() && gathered.leftover_teams.is_empty());
    let key = TeamKey { name: name.clone(), created_at: now() };
    assert_eq!(gathered.quarantine.teams[&key].team, Some(team(TeamState::Ready)));
    let gathered = gather(Found::Absent, teams(TeamState::Completing, 3), now());
    assert_eq!(gathered.leftover_teams.len(), 1);
    let mut document = ledger(5, &[]);
    document.teams.restore(name.clone(), team(TeamState::Working));
    for (revision, state) in [(5, TeamState::Working), (6, TeamState::Ready)] {
        let found = Found::Whole(Box::new(document.clone()));
        let gathered = gather(found, teams(TeamState::Ready, revision), now());
        assert_eq!(gathered.document.teams.get(&name), Some(&team(state)));
    }
}

#[test]
fn same_named_teams_are_kept_apart() {
    let name = TeamName::parse("web").unwrap();
    let later = Team { created_at: now() + jiff::SignedDuration::from_secs(1), ..team(TeamState::Working) };
    let of = |team: &Team, revision, marker| {
        let key = TeamKey::of(&name, team);
        let described = Described::Read(TeamDescription::new(name.clone(), revision, team.clone()));
        FoundTeam { path: PathBuf::from(key.to_string()), key, described, marker }
    };
    let marker = Marker { since: now(), reason: "somebody must look".to_owned() };
    let old = team(TeamState::Ready);
    let (old_key, later_key) = (TeamKey::of(&name, &old), TeamKey::of(&name, &later));
    let mut document = ledger(5, &[]);
    document.teams.restore(name.clone(), later.clone());
    let listed = || Found::Whole(Box::new(document.clone()));
    for (found, marker) in [(listed(), Some(marker.clone())), (listed(), None), (unusable(), None)] {
        let teams = vec![of(&old, 3, marker), of(&later, 5, None)];
        let gathered = gather(found, Survey { teams, ..Survey::default() }, now());
        assert_eq!(gathered.document.teams.get(&name), Some(&later), "the one that was written last");
        assert_eq!(gathered.quarantine.teams[&old_key].team, Some(old.clone()));
        assert!(!gathered.quarantine.teams.contains_key(&later_key));
        assert!(gathered.recovered.is_empty() && gathered.leftover_teams.is_empty());
    }
    // A team that was being destroyed is removed, with exactly its own directory.
    let going = team(TeamState::Completing);
    let teams = vec![of(&going, 3, None), of(&later, 5, None)];
    let gathered = gather(listed(), Survey { teams, ..Survey::default() }, now());
    assert_eq!(gathered.leftover_teams, [old_key]);
    assert_eq!(gathered.document.teams.get(&name), Some(&later));
}

#[test]
fn team_directory_names_identify_their_team() {
    let key = TeamKey { name: TeamName::parse("web").unwrap(), created_at: now() };
    assert_eq!(TeamKey::parse(&key.to_string()), Some(key.clone()));
    for other in ["web", "web.", "web.x", "web.01", "web.+1", "web.1.deleted", "a b.1", ".1", "web.1.2"] {
        assert_eq!(TeamKey::parse(other), None, "{other}");
    }
    let dir = tempfile::tempdir().unwrap();
    let later = Team { created_at: now() + jiff::SignedDuration::from_secs(1), ..team(TeamState::Ready) };
    let description = TeamDescription::new(key.name.clone(), 1, later);
    super::description::write_team(dir.path(), &description).unwrap();
    assert!(matches!(super::read_team(dir.path(), &key), Ok(Described::Damaged(_))), "another's");
}

#[test]
fn real_format_1_description_is_read() {
    let text = include_str!("../../tests/fixtures/workspace-v1-made.json");
    let id: WorkspaceId = "4e9e3b80-0a89-41f1-8b7c-3a3c93bb7bc7".parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("workspace.json"), text).unwrap();
    let Described::Read(description) = super::read_workspace(dir.path(), id).unwrap() else {
        panic!("not read")
    };
    let Holds::Workspace(workspace) = description.holds else { panic!("a workspace") };
    assert_eq!((workspace.entry.name.as_str(), workspace.entry.snapshots.len()), ("web", 2));
    assert!(workspace.owner.is_some());
}

#[test]
fn real_team_description_is_read() {
    let text = include_str!("../../tests/fixtures/team-v1-made.json");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("team.json"), text).unwrap();
    let key = TeamKey::parse("crew.1794994788685914555").unwrap();
    let Described::Read(description) = super::read_team(dir.path(), &key).unwrap() else {
        panic!("not read")
    };
    let hand = description.team.member("hand").unwrap();
    assert_eq!((description.revision, hand.skills.as_slice()), (1, ["rust".to_owned()].as_slice()));
    assert_eq!(hand.workspace.as_str(), "crew-hand-c9a8");
    assert_eq!(serde_json::to_string_pretty(&description).unwrap(), text);
}

fn any_entry() -> impl Strategy<Value = StoredWorkspace> {
    let phases = prop::sample::select(vec![
        Phase::Creating,
        Phase::Running,
        Phase::Stopping,
        Phase::Stopped,
        Phase::Starting,
        Phase::Restoring,
        Phase::Suspended,
        Phase::Destroying,
    ]);
    let vm = prop::option::of((1_i32..i32::MAX, any::<u64>(), "[a-f0-9-]{0,36}"));
    let snapshots = prop::collection::vec(("[a-z][a-z0-9.-]{0,20}", any::<bool>(), any::<i32>()), 0..6);
    (phases, vm, snapshots, prop::option::of(".{0,200}"), any::<u8>(), any::<bool>(), any::<u64>()).prop_map(
        |(phase, vm, snapshots, stop_reason, host, one_call, virtual_size)| {
            let mut made: Vec<StoredSnapshot> = Vec::new();
            for (name, has_memory, second) in snapshots {
                let Ok(name) = SnapshotName::parse(&name) else { continue };
                let created_at = jiff::Timestamp::from_second(second.into()).unwrap();
                let parent = made.last().map(|snapshot| snapshot.id);
                made.push(StoredSnapshot { id: SnapshotId::random(), name, parent, has_memory, created_at });
            }
            let vm = vm.map(|(pid, start_time, boot_id)| VmRecord { pid, start_time, boot_id });
            let mut entry = StoredWorkspace {
                phase,
                vm,
                stop_reason,
                current: made.last().map(|snapshot| snapshot.id),
                removing: vec![SnapshotId::random()],
                snapshots: made,
                one_call,
                ..entry("web", host)
            };
            entry.image.virtual_size = virtual_size;
            entry
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn descriptions_are_read_back_as_written(entry in any_entry(), revision: u64, owned: bool) {
        let dir = tempfile::tempdir().unwrap();
        let id = WorkspaceId::random();
        let owner = owned.then(|| DescribedOwner { session_id: SessionId::random(), created_at: now() });
        let holds = Holds::Workspace(Box::new(DescribedWorkspace { owner, entry }));
        let description = Description::new(id, revision, holds);
        super::write_workspace(dir.path(), &description).unwrap();
        prop_assert_eq!(super::read_workspace(dir.path(), id).unwrap(), Described::Read(description));
        let other = super::read_workspace(dir.path(), WorkspaceId::random()).unwrap();
        prop_assert!(matches!(other, Described::Damaged(_)), "a directory of another name");
    }

    #[test]
    fn damaged_descriptions_are_never_misread(at: prop::sample::Index, byte: u8) {
        let (dir, description) = written();
        let path = dir.path().join("workspace.json");
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        std::fs::write(&path, bytes).unwrap();
        match super::read_workspace(dir.path(), description.id).unwrap() {
            Described::Read(read) => prop_assert_eq!(read, description),
            Described::Missing => prop_assert!(false, "it is there"),
            Described::Newer(_) | Described::Damaged(_) => {}
        }
    }
}

/// A description with two snapshots, in a directory.
fn written() -> (tempfile::TempDir, Description) {
    let dir = tempfile::tempdir().unwrap();
    let entry = StoredWorkspace { snapshots: ["a", "b"].map(snapshot).to_vec(), ..entry("web", 2) };
    let holds = Holds::Workspace(Box::new(DescribedWorkspace { owner: None, entry }));
    let description = Description::new(WorkspaceId::random(), 1, holds);
    super::write_workspace(dir.path(), &description).unwrap();
    (dir, description)
}

#[test]
fn every_changed_byte_of_a_description_is_found() {
    let (dir, description) = written();
    let path = dir.path().join("workspace.json");
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        for other in [b'0', b'8', b'b', b'e'].into_iter().filter(|other| *other != whole[at]) {
            let mut changed = whole.clone();
            changed[at] = other;
            std::fs::write(&path, changed).unwrap();
            match super::read_workspace(dir.path(), description.id).unwrap() {
                // Only a change in the name of the checksum field stays unnoticed.
                Described::Read(read) => assert_eq!(read, description, "{at}"),
                Described::Missing => panic!("it is there"),
                Described::Newer(_) | Described::Damaged(_) => {}
            }
        }
    }
}
