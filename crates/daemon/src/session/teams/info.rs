//! Requests for teams, and the view of a team that every session may see.

use agentiso_core::names::{SnapshotName, WorkspaceName, WorkspaceRef};
use agentiso_core::team::{AgentStatus, Member, RoleName, Team, TeamName, TeamState};

use crate::error::{OpError, TeamError};
use crate::info::WorkspaceInfo;
use crate::registry::Registry;
use crate::session::Session;

/// Request for one member.
#[derive(Clone, Debug)]
pub struct RoleRequest {
    pub name: RoleName,
    pub role: String,
    pub skills: Vec<String>,
    pub description: Option<String>,
}

#[derive(Clone, Debug)]
pub struct TeamRequest {
    pub name: TeamName,
    pub roles: Vec<RoleRequest>,
    pub max_vms: u32,
    /// Workspace and snapshot that members are forked from. `None`: they are created from the image.
    pub golden: Option<(WorkspaceRef, SnapshotName)>,
    pub parent: Option<TeamName>,
}

#[derive(Clone, Debug)]
pub struct TeamInfo {
    pub name: TeamName,
    pub state: TeamState,
    pub created_at: jiff::Timestamp,
    pub max_vms: u32,
    pub parent: Option<TeamName>,
    pub nesting_depth: u32,
    pub members: Vec<MemberInfo>,
}

#[derive(Clone, Debug)]
pub struct MemberInfo {
    pub name: RoleName,
    pub role: String,
    pub status: AgentStatus,
    /// Name of its workspace.
    pub workspace_name: WorkspaceName,
    /// `None`: it was destroyed, or has not been made yet.
    pub workspace: Option<WorkspaceInfo>,
}

impl Session {
    /// Describes a team and its members. Every session may look.
    pub fn team_info(&self, name: &str) -> Result<TeamInfo, OpError> {
        let state = self.shared().state();
        let (name, team) = state.registry.teams.find(name).map_err(TeamError::from)?;
        Ok(self.view_team(&state.registry, name, team))
    }

    pub fn teams(&self) -> Vec<TeamInfo> {
        let registry = &self.shared().state().registry;
        registry.teams.iter().map(|(name, team)| self.view_team(registry, name, team)).collect()
    }

    fn view_team(&self, registry: &Registry, name: &TeamName, team: &Team) -> TeamInfo {
        let member = |member: &Member| MemberInfo {
            name: member.name.clone(),
            role: member.role.clone(),
            status: member.status,
            workspace_name: member.workspace.clone(),
            workspace: member
                .workspace_id
                .and_then(|id| registry.get(&id))
                .map(|workspace| self.view(registry, workspace)),
        };
        TeamInfo {
            name: name.clone(),
            state: team.shown_state(),
            created_at: team.created_at,
            max_vms: team.max_vms,
            parent: team.parent.clone(),
            nesting_depth: registry.teams.depth(name),
            members: team.members.iter().map(member).collect(),
        }
    }
}
