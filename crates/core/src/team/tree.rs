//! All teams of a daemon. A team may have teams below it, and their members count for every team above them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{AgentStatus, Member, RoleName, StoredTasks, Team, TeamName, TeamState};
use crate::ids::{SessionId, WorkspaceId};
use crate::names::WorkspaceName;
use crate::suggest::nearest;

/// The most bytes of a member's role, skills and description. They are in the ledger, which must stay small.
pub const MAX_MEMBER_TEXT: usize = 8 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct TeamLimits {
    pub max_vms_per_team: u32,
    /// A team without a parent is at depth 0.
    pub max_nesting_depth: u32,
}

/// A request to make a team.
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

impl NewMember {
    fn text_len(&self) -> usize {
        let skills: usize = self.skills.iter().map(String::len).sum();
        self.role.len() + skills + self.description.as_ref().map_or(0, String::len)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TeamRefusal {
    #[error("there is no team {wanted:?}{}", did_you_mean(.nearest))]
    NotFound { wanted: String, nearest: Option<String>, known: Vec<String> },
    #[error("a team named {0} exists already")]
    NameTaken(TeamName),
    #[error("a team needs at least one role")]
    NoRoles,
    #[error("two roles are named {0}")]
    DuplicateRole(RoleName),
    #[error("{wanted} roles exceed the limit of {limit} members for {of}{}", taken_suffix(.taken))]
    TooMany { wanted: u32, limit: u32, of: String, taken: u32 },
    #[error("team {name} would be {depth} levels below the top team; at most {limit} are allowed")]
    TooDeep { name: TeamName, depth: u32, limit: u32 },
    #[error(
        "role, skills and description of {name} have {len} bytes in total; at most {MAX_MEMBER_TEXT} are allowed"
    )]
    TooLong { name: RoleName, len: usize },
    #[error("team {0} is being destroyed")]
    Going(TeamName),
    #[error("team {0} is still being created")]
    BeingMade(TeamName),
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

fn taken_suffix(taken: &u32) -> String {
    if *taken == 0 { String::new() } else { format!(", {taken} of which exist already") }
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

    /// The member whose workspace this is, if its team is ready or working.
    pub fn member_at(&self, workspace: &WorkspaceId) -> Option<(&TeamName, &Member)> {
        let there = |team: &&Team| match team.state {
            TeamState::Ready | TeamState::Working => true,
            TeamState::Creating | TeamState::Completing | TeamState::Destroyed => false,
        };
        let teams = self.0.iter().filter(|(_, team)| there(team));
        let mut members =
            teams.flat_map(|(name, team)| team.members.iter().map(move |member| (name, member)));
        members.find(|(_, member)| member.workspace_id.as_ref() == Some(workspace))
    }

    /// Enters a team that is about to be made, with all its members, or returns the reason against it.
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
        for role in &roles {
            let len = role.text_len();
            if len > MAX_MEMBER_TEXT {
                return Err(TeamRefusal::TooLong { name: role.name.clone(), len });
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
            workspace_id: None,
            status: AgentStatus::Initializing,
            on_board: false,
            pending_tasks: 0,
            stored_messages: Vec::new(),
            stored_tasks: StoredTasks::default(),
        };
        let members = roles.into_iter().map(member).collect();
        let team = Team { state: TeamState::Creating, created_at, owner, max_vms, parent, members };
        self.0.insert(name, team);
        Ok(())
    }

    /// Checks that this many members fit below a team and all teams above it. Returns the depth of the new team.
    fn admit_below(
        &self,
        parent: &TeamName,
        count: u32,
        too_many: &dyn Fn(u32, String, u32) -> TeamRefusal,
    ) -> Result<u32, TeamRefusal> {
        self.find(parent.as_str())?;
        let mut depth = 0;
        for (name, team) in self.self_and_ancestors(parent) {
            match team.state {
                TeamState::Completing | TeamState::Destroyed => {
                    return Err(TeamRefusal::Going(name.clone()));
                }
                // Its creation may still be undone, together with all teams below it.
                TeamState::Creating => return Err(TeamRefusal::BeingMade(name.clone())),
                TeamState::Ready | TeamState::Working => {}
            }
            let taken = self.members_below(name);
            if taken.saturating_add(count) > team.max_vms {
                return Err(too_many(team.max_vms, format!("team {name} and its sub-teams"), taken));
            }
            depth += 1;
        }
        Ok(depth)
    }

    /// A team, its parent, and so on.
    fn self_and_ancestors<'a>(
        &'a self,
        name: &'a TeamName,
    ) -> impl Iterator<Item = (&'a TeamName, &'a Team)> {
        let first = self.0.get_key_value(name);
        // A ledger that was edited by hand may hold a cycle.
        std::iter::successors(first, |(_, team)| self.0.get_key_value(team.parent.as_ref()?))
            .take(self.0.len())
    }

    /// The members of a team and of all teams below it.
    pub(crate) fn members_below(&self, name: &TeamName) -> u32 {
        let teams = self.subtree(name);
        let members = teams.iter().filter_map(|team| self.0.get(team)).map(|team| team.members.len());
        u32::try_from(members.sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// A team and all below it, the deepest first: the order in which they can be destroyed.
    pub(crate) fn subtree(&self, name: &TeamName) -> Vec<TeamName> {
        let below = |team: &&TeamName| self.self_and_ancestors(team).any(|(above, _)| above == name);
        let mut all: Vec<(usize, TeamName)> = self
            .0
            .keys()
            .filter(below)
            .map(|team| (self.self_and_ancestors(team).count(), team.clone()))
            .collect();
        all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        all.into_iter().map(|(_, team)| team).collect()
    }

    pub fn depth(&self, name: &TeamName) -> u32 {
        u32::try_from(self.self_and_ancestors(name).count().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// Adds a stored team. Returns false and changes nothing if there is a team of that name.
    pub fn restore(&mut self, name: TeamName, team: Team) -> bool {
        let free = !self.0.contains_key(&name);
        if free {
            self.0.insert(name, team);
        }
        free
    }

    pub fn remove(&mut self, name: &TeamName) -> Option<Team> {
        self.0.remove(name)
    }

    /// The member that is named by `TEAM-ROLE` or `TEAM.ROLE`.
    pub fn member_named(&self, text: &str) -> Option<&Member> {
        self.0.iter().find_map(|(name, team)| {
            let role = text.strip_prefix(name.as_str())?.strip_prefix(['-', '.'])?;
            team.member(role)
        })
    }

    /// Marks a team and all below it as being destroyed, so that nothing is added to them. Returns them in the order in
    /// which they are to be destroyed. Refused while one of them is still being made, unless `undo` is set and it is
    /// the team itself.
    pub fn begin_end(&mut self, name: &TeamName, undo: bool) -> Result<Vec<TeamName>, TeamRefusal> {
        let teams = self.subtree(name);
        let making = |team: &&TeamName| {
            let state = self.0.get(team).map(|team| team.state);
            state == Some(TeamState::Creating) && !(undo && *team == name)
        };
        if let Some(team) = teams.iter().find(making) {
            return Err(TeamRefusal::BeingMade(team.clone()));
        }
        for team in &teams {
            if let Some(team) = self.0.get_mut(team) {
                team.state = TeamState::Completing;
            }
        }
        Ok(teams)
    }

    /// Gives a new workspace to the member that was entered with this workspace name, in a team that its session is
    /// making.
    pub fn fill(&mut self, workspace: &WorkspaceName, owner: &SessionId, id: WorkspaceId) {
        let teams = self.0.values_mut();
        let mut making = teams.filter(|team| team.state == TeamState::Creating && team.owner == *owner);
        let place = making.find_map(|team| team.members.iter_mut().find(|m| m.workspace == *workspace));
        if let Some(place) = place.filter(|place| place.workspace_id.is_none()) {
            place.workspace_id = Some(id);
        }
    }

    /// The team and member that a workspace belongs to.
    pub fn team_of(&self, workspace: &WorkspaceId) -> Option<(&TeamName, &Member)> {
        self.0.iter().find_map(|(name, team)| {
            let member =
                team.members.iter().find(|member| member.workspace_id.as_ref() == Some(workspace))?;
            Some((name, member))
        })
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&TeamName, &mut Team)> {
        self.0.iter_mut()
    }
}
