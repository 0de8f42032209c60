//! Network groups of team members: a member reaches its own team, its parent team and its child teams.

use std::collections::BTreeSet;

use super::{TeamName, Teams};
use crate::ids::WorkspaceId;

/// The group of a team's own members.
fn own_group(team: &TeamName) -> String {
    format!("team {team}")
}

/// The group of a team's members and those of the team directly above it.
fn parent_group(team: &TeamName) -> String {
    format!("team {team} and its parent")
}

impl Teams {
    /// The groups of a workspace. Workspaces that share a group reach each other. A workspace without a team has no
    /// group.
    pub fn groups_of(&self, workspace: &WorkspaceId) -> BTreeSet<String> {
        let Some((name, _)) = self.team_of(workspace) else { return BTreeSet::new() };
        let below = self.iter().filter(|(_, team)| team.parent.as_ref() == Some(name));
        let mut groups: BTreeSet<String> = below.map(|(child, _)| parent_group(child)).collect();
        groups.insert(own_group(name));
        if self.get(name).is_some_and(|team| team.parent.is_some()) {
            groups.insert(parent_group(name));
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::ids::SessionId;
    use crate::team::{NewMember, NewTeam, RoleName, TeamLimits, TeamState};

    #[test]
    fn team_groups_span_itself_and_its_parent() {
        let mut teams = Teams::default();
        let mut member = |team: &str, parent: Option<&str>| {
            let (name, role) = (TeamName::parse(team).unwrap(), RoleName::parse("r").unwrap());
            let workspace = name.member_workspace(&role, 7);
            let new = NewMember {
                name: role,
                role: String::new(),
                skills: Vec::new(),
                description: None,
                workspace: workspace.clone(),
            };
            let wanted = NewTeam {
                name: name.clone(),
                owner: SessionId::shell(),
                max_vms: 10,
                parent: parent.map(|parent| TeamName::parse(parent).unwrap()),
                roles: vec![new],
                created_at: Timestamp::UNIX_EPOCH,
            };
            teams.reserve(wanted, TeamLimits { max_vms_per_team: 10, max_nesting_depth: 3 }).unwrap();
            let id = WorkspaceId::random();
            teams.fill(&workspace, &SessionId::shell(), id);
            teams.get_mut(&name).unwrap().state = TeamState::Ready;
            id
        };
        let top = member("top", None);
        let (mid, aunt) = (member("mid", Some("top")), member("aunt", Some("top")));
        let (low, apart) = (member("low", Some("mid")), member("apart", None));
        let stranger = WorkspaceId::random();
        for (one, other, near) in [
            (top, top, true),
            (top, mid, true),
            (top, aunt, true),
            (low, mid, true),
            (top, low, false),
            (mid, aunt, false),
            (top, apart, false),
            (top, stranger, false),
            (stranger, stranger, false),
        ] {
            let (ours, theirs) = (teams.groups_of(&one), teams.groups_of(&other));
            assert_eq!(!ours.is_disjoint(&theirs), near, "{ours:?} and {theirs:?}");
        }
    }
}
