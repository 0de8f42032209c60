//! Tests of making, nesting and finding teams, and of their budgets.

use proptest::prelude::*;

use jiff::Timestamp;

use super::tree::{NewMember, NewTeam, TeamLimits, TeamRefusal, Teams};
use super::{RoleName, TeamName, TeamState};
use crate::ids::{SessionId, WorkspaceId};
use crate::names::WorkspaceName;

const LIMITS: TeamLimits = TeamLimits { max_vms_per_team: 20, max_nesting_depth: 3 };

fn name(text: &str) -> TeamName {
    TeamName::parse(text).unwrap()
}

/// Enters a team and makes it ready.
fn ready(teams: &mut Teams, wanted: NewTeam) -> Result<(), TeamRefusal> {
    let name = wanted.name.clone();
    teams.reserve(wanted, LIMITS)?;
    teams.get_mut(&name).unwrap().state = TeamState::Ready;
    Ok(())
}

fn wanted(team: &str, parent: Option<&str>, max_vms: u32, roles: usize) -> NewTeam {
    let role = |number| {
        let role = RoleName::parse(&format!("r{number}")).unwrap();
        NewMember {
            workspace: name(team).member_workspace(&role, 7),
            name: role,
            role: "worker".to_owned(),
            skills: Vec::new(),
            description: None,
        }
    };
    NewTeam {
        name: name(team),
        owner: SessionId::shell(),
        max_vms,
        parent: parent.map(name),
        roles: (0..roles).map(role).collect(),
        created_at: Timestamp::UNIX_EPOCH,
    }
}

#[test]
fn subteam_members_count_for_all_ancestors() {
    let mut teams = Teams::default();
    ready(&mut teams, wanted("top", None, 5, 2)).unwrap();
    ready(&mut teams, wanted("mid", Some("top"), 10, 2)).unwrap();
    let refused = teams.reserve(wanted("low", Some("mid"), 10, 2), LIMITS).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "2 roles exceed the limit of 5 members for team top and its sub-teams, 4 of which exist already"
    );
    teams.reserve(wanted("low", Some("mid"), 10, 1), LIMITS).unwrap();
    assert_eq!(teams.subtree(&name("top")), ["low", "mid", "top"].map(name));
    assert_eq!((teams.members_below(&name("top")), teams.depth(&name("low"))), (5, 2));
    teams.remove(&name("low"));
    assert!(teams.reserve(wanted("other", Some("top"), 10, 1), LIMITS).is_ok());
}

#[test]
fn invalid_team_requests_are_refused_by_reason() {
    let mut teams = Teams::default();
    let refuse = |teams: &mut Teams, wanted| teams.reserve(wanted, LIMITS).unwrap_err();
    assert_eq!(refuse(&mut teams, wanted("a", None, 5, 0)), TeamRefusal::NoRoles);
    assert!(matches!(refuse(&mut teams, wanted("a", None, 5, 6)), TeamRefusal::TooMany { limit: 5, .. }));
    assert!(matches!(refuse(&mut teams, wanted("a", None, 50, 21)), TeamRefusal::TooMany { limit: 20, .. }));
    let mut twice = wanted("a", None, 5, 2);
    twice.roles[1].name = twice.roles[0].name.clone();
    assert!(matches!(refuse(&mut teams, twice), TeamRefusal::DuplicateRole(_)));
    assert!(matches!(refuse(&mut teams, wanted("a", Some("no"), 5, 1)), TeamRefusal::NotFound { .. }));
    teams.reserve(wanted("alpha", None, 5, 1), LIMITS).unwrap();
    assert_eq!(refuse(&mut teams, wanted("alpha", None, 5, 1)), TeamRefusal::NameTaken(name("alpha")));
    let TeamRefusal::NotFound { nearest, .. } = teams.find("alhpa").unwrap_err() else { panic!() };
    assert_eq!(nearest.as_deref(), Some("alpha"));
    assert_eq!(refuse(&mut teams, wanted("b", Some("alpha"), 5, 1)), TeamRefusal::BeingMade(name("alpha")));
    assert_eq!(teams.begin_end(&name("alpha"), false), Err(TeamRefusal::BeingMade(name("alpha"))));
    assert_eq!(teams.begin_end(&name("alpha"), true), Ok(vec![name("alpha")]));
    assert_eq!(refuse(&mut teams, wanted("b", Some("alpha"), 5, 1)), TeamRefusal::Going(name("alpha")));
}

#[test]
fn team_nesting_depth_is_limited() {
    let mut teams = Teams::default();
    let names = ["t0", "t1", "t2", "t3", "t4"];
    for (depth, team) in names.iter().enumerate() {
        let parent = depth.checked_sub(1).map(|above| names[above]);
        let made = ready(&mut teams, wanted(team, parent, 20, 1));
        assert_eq!(made.is_ok(), depth <= 3, "{made:?}");
    }
}

#[test]
fn member_is_found_by_dash_or_dot() {
    let mut teams = Teams::default();
    teams.reserve(wanted("a", None, 5, 2), LIMITS).unwrap();
    teams.reserve(wanted("a-r1", None, 5, 2), LIMITS).unwrap();
    let found = |text: &str| teams.member_named(text).map(|member| member.workspace.to_string());
    assert_eq!(found("a-r0").as_deref(), Some("a-r0-0007"));
    assert_eq!(found("a.r1").as_deref(), Some("a-r1-0007"));
    assert_eq!(found("a-r1.r0").as_deref(), Some("a-r1-r0-0007"));
    assert_eq!((found("a"), found("a-r9"), found("r0")), (None, None, None));
    let (id, workspace) = (WorkspaceId::random(), WorkspaceName::parse("a-r1-r0-0007").unwrap());
    teams.fill(&workspace, &SessionId::random(), id);
    assert_eq!(teams.team_of(&id), None, "a name that somebody else gave away");
    teams.fill(&workspace, &SessionId::shell(), id);
    teams.fill(&workspace, &SessionId::shell(), WorkspaceId::random());
    let (team, member) = teams.team_of(&id).unwrap();
    assert_eq!((team.as_str(), member.name.as_str()), ("a-r1", "r0"));
}

#[test]
fn cyclic_team_parents_do_not_loop() {
    let mut teams = Teams::default();
    ready(&mut teams, wanted("a", None, 5, 1)).unwrap();
    ready(&mut teams, wanted("b", Some("a"), 5, 1)).unwrap();
    teams.get_mut(&name("a")).unwrap().parent = Some(name("b"));
    assert_eq!(teams.subtree(&name("a")).len(), 2);
    let _either_answer_will_do = teams.reserve(wanted("c", Some("b"), 5, 1), LIMITS);
}

proptest! {
    /// Whatever is made and removed, no team exceeds its budget, all teams below it included.
    #[test]
    fn team_budgets_are_never_exceeded(
        steps in prop::collection::vec((0_usize..8, prop::option::of(0_usize..8), 1_u32..8, 0_usize..8, any::<bool>()), 1..60),
    ) {
        let mut teams = Teams::default();
        for (team, parent, max_vms, roles, remove) in steps {
            let team = format!("t{team}");
            if remove {
                for gone in teams.subtree(&name(&team)) {
                    teams.remove(&gone);
                }
                continue;
            }
            let parent = parent.map(|parent| format!("t{parent}"));
            let _refused_or_not = ready(&mut teams, wanted(&team, parent.as_deref(), max_vms, roles));
            for (name, team) in teams.iter() {
                prop_assert!(teams.members_below(name) <= team.max_vms);
                prop_assert!(teams.depth(name) <= LIMITS.max_nesting_depth);
            }
        }
    }
}
