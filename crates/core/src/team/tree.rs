//! All teams of a server. A team may have teams below it, and what those take counts for every team above them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{AgentStatus, Mailbox, Member, RoleName, Team, TeamName, TeamState};
use crate::ids::SessionId;
use crate::names::WorkspaceName;
use crate::suggest::nearest;

#[derive(Clone, Copy, Debug)]
pub struct TeamLimits {
    pub max_vms_per_team: u32,
    /// A team without a parent is at depth 0.
    pub max_nesting_depth: u32,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct NewTeam {
    pub name: TeamName,
    pub owner: SessionId,
    pub max_vms: u32,
    pub parent: Option<TeamName>,
    pub roles: Vec<NewMember>,
    pub created_at: Timestamp,
}

#[derive(Clone, Debug)]
pub struct NewMember {
    pub name: RoleName,
    pub role: String,
    pub skills: Vec<String>,
    pub description: Option<String>,
    pub workspace: WorkspaceName,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TeamRefusal {
    #[error("no team {wanted:?} exists{}", did_you_mean(.nearest))]
    NotFound { wanted: String, nearest: Option<String>, known: Vec<String> },
    #[error("a team named {0} exists already")]
    NameTaken(TeamName),
    #[error("a team needs at least one role")]
    NoRoles,
    #[error("two roles are named {0}")]
    DuplicateRole(RoleName),
    #[error("{wanted} roles are more than the {limit} members that {of} may have{}", beside(.taken))]
    TooMany { wanted: u32, limit: u32, of: String, taken: u32 },
    #[error("team {name} would be {depth} levels below the topmost; at most {limit} are allowed")]
    TooDeep { name: TeamName, depth: u32, limit: u32 },
    #[error("team {0} is being destroyed")]
    Going(TeamName),
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

fn beside(taken: &u32) -> String {
    if *taken == 0 { String::new() } else { format!(", of which {taken} are taken") }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Teams(BTreeMap<TeamName, Team>);

impl Teams {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TeamName, &Team)> {
        self.0.iter()
    }

    pub fn find(&self, name: &str) -> Result<(&TeamName, &Team), TeamRefusal> {
        let found = self.0.iter().find(|(known, _)| known.as_str() == name);
        found.ok_or_else(|| {
            let known: Vec<String> = self.0.keys().map(ToString::to_string).collect();
            TeamRefusal::NotFound {
                wanted: name.chars().take(80).collect(),
                nearest: nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
                known,
            }
        })
    }

    pub fn get(&self, name: &TeamName) -> Option<&Team> {
        self.0.get(name)
    }

    pub fn get_mut(&mut self, name: &TeamName) -> Option<&mut Team> {
        self.0.get_mut(name)
    }

    /// Enters a team that is about to be made, with places for all its members, or says what is in the way.
    pub fn reserve(&mut self, wanted: NewTeam, limits: TeamLimits) -> Result<(), TeamRefusal> {
        let NewTeam { name, owner, max_vms, parent, roles, created_at } = wanted;
        if self.0.contains_key(&name) {
            return Err(TeamRefusal::NameTaken(name));
        }
        let count = u32::try_from(roles.len()).unwrap_or(u32::MAX);
        if count == 0 {
            return Err(TeamRefusal::NoRoles);
        }
        for (at, role) in roles.iter().enumerate() {
            if roles[..at].iter().any(|other| other.name == role.name) {
                return Err(TeamRefusal::DuplicateRole(role.name.clone()));
            }
        }
        let too_many = |limit, of: String, taken| TeamRefusal::TooMany { wanted: count, limit, of, taken };
        if count > limits.max_vms_per_team {
            return Err(too_many(limits.max_vms_per_team, "a team on this server".to_owned(), 0));
        }
        if count > max_vms {
            return Err(too_many(max_vms, format!("team {name}"), 0));
        }
        if let Some(parent) = &parent {
            let depth = self.admit_below(parent, count, &too_many)?;
            if depth > limits.max_nesting_depth {
                return Err(TeamRefusal::TooDeep { name, depth, limit: limits.max_nesting_depth });
            }
        }
        let member = |new: NewMember| Member {
            name: new.name,
            role: new.role,
            skills: new.skills,
            description: new.description,
            workspace: new.workspace,
            status: AgentStatus::Initializing,
            mail: Mailbox::default(),
        };
        let members = roles.into_iter().map(member).collect();
        let team = Team { state: TeamState::Creating, created_at, owner, max_vms, parent, members };
        self.0.insert(name, team);
        Ok(())
    }

    /// Whether so many fit below a team and all above it; the depth they would be at.
    fn admit_below(
        &self,
        parent: &TeamName,
        count: u32,
        too_many: &dyn Fn(u32, String, u32) -> TeamRefusal,
    ) -> Result<u32, TeamRefusal> {
        self.find(parent.as_str())?;
        let mut depth = 0;
        for (name, team) in self.upwards(parent) {
            if matches!(team.state, TeamState::Completing | TeamState::Destroyed) {
                return Err(TeamRefusal::Going(name.clone()));
            }
            let taken = self.members_below(name);
            if taken.saturating_add(count) > team.max_vms {
                return Err(too_many(team.max_vms, format!("team {name} with all below it"), taken));
            }
            depth += 1;
        }
        Ok(depth)
    }

    /// A team, its parent, and so on.
    fn upwards<'a>(&'a self, name: &'a TeamName) -> impl Iterator<Item = (&'a TeamName, &'a Team)> {
        let first = self.0.get_key_value(name);
        // A ledger that somebody edited may hold a circle.
        std::iter::successors(first, |(_, team)| self.0.get_key_value(team.parent.as_ref()?))
            .take(self.0.len())
    }

    /// The members of a team and of all teams below it.
    pub fn members_below(&self, name: &TeamName) -> u32 {
        let teams = self.subtree(name);
        let members = teams.iter().filter_map(|team| self.0.get(team)).map(|team| team.members.len());
        u32::try_from(members.sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// A team and all below it, those furthest down first: the order in which they can be destroyed.
    pub fn subtree(&self, name: &TeamName) -> Vec<TeamName> {
        let below = |team: &&TeamName| self.upwards(team).any(|(above, _)| above == name);
        let mut all: Vec<(usize, TeamName)> =
            self.0.keys().filter(below).map(|team| (self.upwards(team).count(), team.clone())).collect();
        all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        all.into_iter().map(|(_, team)| team).collect()
    }

    pub fn depth(&self, name: &TeamName) -> u32 {
        u32::try_from(self.upwards(name).count().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    pub fn remove(&mut self, name: &TeamName) -> Option<Team> {
        self.0.remove(name)
    }

    /// The place whose machine is meant by `TEAM-ROLE` or `TEAM.ROLE`.
    pub fn member_named(&self, text: &str) -> Option<&Member> {
        self.0.iter().find_map(|(name, team)| {
            let role = text.strip_prefix(name.as_str())?.strip_prefix(['-', '.'])?;
            team.member(role)
        })
    }

    /// The team that a machine belongs to.
    pub fn team_of(&self, workspace: &WorkspaceName) -> Option<(&TeamName, &Member)> {
        self.0.iter().find_map(|(name, team)| {
            let member = team.members.iter().find(|member| member.workspace == *workspace)?;
            Some((name, member))
        })
    }

    /// Whether members of two teams may talk to each other: it is the same team, or one is directly above the other.
    pub fn are_near(&self, one: &TeamName, other: &TeamName) -> bool {
        let parent = |team: &TeamName| self.0.get(team).and_then(|team| team.parent.as_ref());
        self.0.contains_key(one) && (one == other || parent(one) == Some(other) || parent(other) == Some(one))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: TeamLimits = TeamLimits { max_vms_per_team: 20, max_nesting_depth: 3 };

    fn name(text: &str) -> TeamName {
        TeamName::parse(text).unwrap()
    }

    fn wanted(team: &str, parent: Option<&str>, max_vms: u32, roles: usize) -> NewTeam {
        let role = |number| {
            let role = RoleName::parse(&format!("r{number}")).unwrap();
            NewMember {
                workspace: name(team).member_workspace(&role, 7).unwrap(),
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
    fn what_is_below_a_team_counts_for_all_above_it() {
        let mut teams = Teams::default();
        teams.reserve(wanted("top", None, 5, 2), LIMITS).unwrap();
        teams.reserve(wanted("mid", Some("top"), 10, 2), LIMITS).unwrap();
        let refused = teams.reserve(wanted("low", Some("mid"), 10, 2), LIMITS).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "2 roles are more than the 5 members that team top with all below it may have, of which 4 are taken"
        );
        teams.reserve(wanted("low", Some("mid"), 10, 1), LIMITS).unwrap();
        assert_eq!(teams.subtree(&name("top")), ["low", "mid", "top"].map(name));
        assert_eq!((teams.members_below(&name("top")), teams.depth(&name("low"))), (5, 2));
        teams.remove(&name("low"));
        assert!(teams.reserve(wanted("other", Some("top"), 10, 1), LIMITS).is_ok());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut teams = Teams::default();
        let refuse = |teams: &mut Teams, wanted| teams.reserve(wanted, LIMITS).unwrap_err();
        assert_eq!(refuse(&mut teams, wanted("a", None, 5, 0)), TeamRefusal::NoRoles);
        assert!(matches!(refuse(&mut teams, wanted("a", None, 5, 6)), TeamRefusal::TooMany { limit: 5, .. }));
        assert!(matches!(
            refuse(&mut teams, wanted("a", None, 50, 21)),
            TeamRefusal::TooMany { limit: 20, .. }
        ));
        let mut twice = wanted("a", None, 5, 2);
        twice.roles[1].name = twice.roles[0].name.clone();
        assert!(matches!(refuse(&mut teams, twice), TeamRefusal::DuplicateRole(_)));
        assert!(matches!(refuse(&mut teams, wanted("a", Some("no"), 5, 1)), TeamRefusal::NotFound { .. }));
        teams.reserve(wanted("alpha", None, 5, 1), LIMITS).unwrap();
        assert_eq!(refuse(&mut teams, wanted("alpha", None, 5, 1)), TeamRefusal::NameTaken(name("alpha")));
        let TeamRefusal::NotFound { nearest, .. } = teams.find("alhpa").unwrap_err() else { panic!() };
        assert_eq!(nearest.as_deref(), Some("alpha"));
        teams.get_mut(&name("alpha")).unwrap().state = TeamState::Completing;
        assert_eq!(refuse(&mut teams, wanted("b", Some("alpha"), 5, 1)), TeamRefusal::Going(name("alpha")));
    }

    #[test]
    fn teams_are_nested_only_so_deep() {
        let mut teams = Teams::default();
        let names = ["t0", "t1", "t2", "t3", "t4"];
        for (depth, team) in names.iter().enumerate() {
            let parent = depth.checked_sub(1).map(|above| names[above]);
            let made = teams.reserve(wanted(team, parent, 20, 1), LIMITS);
            assert_eq!(made.is_ok(), depth <= 3, "{made:?}");
        }
    }

    #[test]
    fn a_team_is_near_to_itself_and_to_the_one_above() {
        let mut teams = Teams::default();
        for (team, parent) in [("top", None), ("mid", Some("top")), ("low", Some("mid")), ("apart", None)] {
            teams.reserve(wanted(team, parent, 20, 2), LIMITS).unwrap();
        }
        for (one, other, near) in [
            ("top", "top", true),
            ("top", "mid", true),
            ("low", "mid", true),
            ("top", "low", false),
            ("top", "apart", false),
            ("no", "no", false),
        ] {
            assert_eq!(teams.are_near(&name(one), &name(other)), near, "{one} and {other}");
            assert_eq!(teams.are_near(&name(other), &name(one)), near, "{other} and {one}");
        }
    }

    #[test]
    fn a_member_is_found_by_every_form_of_its_name() {
        let mut teams = Teams::default();
        teams.reserve(wanted("a", None, 5, 2), LIMITS).unwrap();
        teams.reserve(wanted("a-r1", None, 5, 2), LIMITS).unwrap();
        let found = |text: &str| teams.member_named(text).map(|member| member.workspace.to_string());
        assert_eq!(found("a-r0").as_deref(), Some("a-r0-0007"));
        assert_eq!(found("a.r1").as_deref(), Some("a-r1-0007"));
        assert_eq!(found("a-r1.r0").as_deref(), Some("a-r1-r0-0007"));
        assert_eq!((found("a"), found("a-r9"), found("r0")), (None, None, None));
        let (team, member) = teams.team_of(&WorkspaceName::parse("a-r1-r0-0007").unwrap()).unwrap();
        assert_eq!((team.as_str(), member.name.as_str()), ("a-r1", "r0"));
    }

    #[test]
    fn a_circle_in_an_edited_ledger_ends() {
        let mut teams = Teams::default();
        teams.reserve(wanted("a", None, 5, 1), LIMITS).unwrap();
        teams.reserve(wanted("b", Some("a"), 5, 1), LIMITS).unwrap();
        teams.get_mut(&name("a")).unwrap().parent = Some(name("b"));
        assert_eq!(teams.subtree(&name("a")).len(), 2);
        let _either_answer_will_do = teams.reserve(wanted("c", Some("b"), 5, 1), LIMITS);
    }

    proptest! {
        /// Whatever is made and removed, no team holds more than it may, all below it included.
        #[test]
        fn no_budget_is_ever_exceeded(
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
                let _refused_or_not = teams.reserve(wanted(&team, parent.as_deref(), max_vms, roles), LIMITS);
                for (name, team) in teams.iter() {
                    prop_assert!(teams.members_below(name) <= team.max_vms);
                    prop_assert!(teams.depth(name) <= LIMITS.max_nesting_depth);
                }
            }
        }
    }
}
