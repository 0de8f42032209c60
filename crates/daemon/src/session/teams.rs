//! Teams: machines that are made together, write to each other, and go together.

use std::time::Instant;

use agentiso_core::lifecycle::Operation;
use agentiso_core::names::{SnapshotName, WorkspaceRef};
use agentiso_core::team::{
    AgentStatus, MailError, Message, NewMember, NewTeam, RoleName, TeamLimits, TeamName, TeamRefusal,
    TeamState,
};
use futures::StreamExt;
use thiserror::Error;
use uuid::Uuid;

use super::Session;
use crate::error::OpError;
use crate::info::{CreateRequest, ForkRequest, WorkspaceInfo};
use crate::machines::Progress;
use crate::shared::Shared;

/// Members that come up at once: more would only wait for each other.
const AT_ONCE: usize = 4;

/// What is asked for a member.
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
    /// What members are forked from; else they are fresh.
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
    /// `None`: it was destroyed, or is not made yet.
    pub workspace: Option<WorkspaceInfo>,
}

#[derive(Debug, Error)]
pub enum TeamError {
    #[error(transparent)]
    Refused(#[from] TeamRefusal),
    #[error(transparent)]
    Mail(#[from] MailError),
    #[error("team {name} belongs to a session that was active {idle_secs} s ago")]
    OwnerActive { name: TeamName, idle_secs: u64 },
    #[error("member {role} of team {team} could not be made, so the team was not: {source}")]
    Member {
        team: TeamName,
        role: RoleName,
        #[source]
        source: Box<OpError>,
    },
    #[error("team {team} could not be destroyed: {left} of its machines are left")]
    Left { team: TeamName, left: usize },
}

impl TeamError {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Refused(TeamRefusal::NotFound { .. }) => "team_not_found",
            Self::Refused(TeamRefusal::NameTaken(_)) => "team_exists",
            Self::Refused(TeamRefusal::NoRoles | TeamRefusal::DuplicateRole(_)) => "bad_roles",
            Self::Refused(TeamRefusal::TooMany { .. }) => "team_budget",
            Self::Refused(TeamRefusal::TooDeep { .. }) => "team_too_deep",
            Self::Refused(TeamRefusal::Going(_)) => "team_going",
            Self::Mail(MailError::NotAMember { .. }) => "not_a_member",
            Self::Mail(MailError::TooLong(_)) => "message_too_long",
            Self::OwnerActive { .. } => "owner_active",
            Self::Member { source, .. } => source.code(),
            Self::Left { .. } => "destroy_failed",
        }
    }

    pub(crate) fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Refused(TeamRefusal::NotFound { known, .. }) if known.is_empty() => {
                "there are no teams; make one with team (action create)".to_owned()
            }
            Self::Refused(TeamRefusal::NotFound { known, .. }) => format!("there are: {}", known.join(", ")),
            Self::Refused(TeamRefusal::NameTaken(_)) => {
                "choose another name, or destroy that team first with team (action destroy)".to_owned()
            }
            Self::Refused(TeamRefusal::NoRoles | TeamRefusal::DuplicateRole(_)) => {
                "give each member a name of its own".to_owned()
            }
            Self::Refused(TeamRefusal::TooMany { .. }) => {
                "ask for fewer roles, or for a larger max_vms of the topmost team".to_owned()
            }
            Self::Refused(TeamRefusal::TooDeep { .. }) => "make it below a team further up".to_owned(),
            Self::Refused(TeamRefusal::Going(_)) => "make another team".to_owned(),
            Self::Mail(MailError::NotAMember { .. }) => "team (action status) shows the members".to_owned(),
            Self::Mail(MailError::TooLong(_)) => {
                "put it into a note or a file, and send where it is".to_owned()
            }
            Self::OwnerActive { .. } => "wait until its session is idle for 60 s or has ended".to_owned(),
            Self::Member { source, .. } => return source.hint(),
            Self::Left { .. } => "try again once the cause is removed".to_owned(),
        };
        Some(text)
    }

    pub(crate) fn retryable(&self) -> bool {
        match self {
            Self::OwnerActive { .. } | Self::Left { .. } => true,
            Self::Member { source, .. } => source.retryable(),
            Self::Refused(_) | Self::Mail(_) => false,
        }
    }
}

impl Session {
    /// Makes a team with all its machines, or nothing. Dropping the future undoes it.
    pub async fn create_team(
        &self,
        mut request: TeamRequest,
        progress: &Progress,
    ) -> Result<TeamInfo, OpError> {
        self.refuse_when_closing()?;
        if let Some((golden, snapshot)) = &mut request.golden {
            let (found, ..) = self.admitted_snapshot(golden, snapshot, Operation::UseSnapshots)?;
            // Its name may be another's by the time that the last member is forked.
            *golden = WorkspaceRef::Id(found.id);
        }
        let progress = progress.clone();
        self.guarded(|session, stop| async move {
            let _call = session.begin_call();
            session.enter_team(&request)?;
            let filled = match session.shared().save().await {
                Ok(()) => stop.run_until_cancelled(session.fill(&request, &progress)).await,
                Err(error) => Some(Err(OpError::Ledger(error))),
            };
            match filled {
                Some(Ok(())) if !stop.is_cancelled() => session.set_ready(&request.name).await,
                Some(Err(error)) => {
                    session.dissolve(&request.name).await?;
                    Err(error)
                }
                Some(Ok(())) | None => {
                    session.dissolve(&request.name).await?;
                    Err(OpError::Cancelled)
                }
            }
        })
        .await
    }

    fn enter_team(&self, request: &TeamRequest) -> Result<(), OpError> {
        let member = |role: &RoleRequest| {
            let digits = Uuid::new_v4().as_u128() as u16;
            let workspace =
                request.name.member_workspace(&role.name, digits).map_err(|_| OpError::Cancelled)?;
            Ok(NewMember {
                name: role.name.clone(),
                role: role.role.clone(),
                skills: role.skills.clone(),
                description: role.description.clone(),
                workspace,
            })
        };
        let new = NewTeam {
            name: request.name.clone(),
            owner: self.id().clone(),
            max_vms: request.max_vms,
            parent: request.parent.clone(),
            roles: request.roles.iter().map(member).collect::<Result<_, OpError>>()?,
            created_at: jiff::Timestamp::now(),
        };
        let resources = &self.shared().config.resources;
        let limits = TeamLimits {
            max_vms_per_team: resources.max_vms_per_team,
            max_nesting_depth: resources.max_nesting_depth,
        };
        self.shared().change(|registry| {
            if let Some(parent) = &request.parent {
                registry.own_team(parent.as_str(), self.id(), self.kind(), Instant::now())?;
            }
            registry.teams.reserve(new, limits).map_err(TeamError::from)?;
            Ok(())
        })
    }

    /// Makes the machines of all members. The first that fails ends it; what was made by then is there.
    async fn fill(&self, request: &TeamRequest, progress: &Progress) -> Result<(), OpError> {
        let members: Vec<_> = {
            let state = self.shared().state();
            let (_, team) = state.registry.teams.find(request.name.as_str()).map_err(TeamError::from)?;
            team.members.iter().map(|member| (member.name.clone(), member.workspace.clone())).collect()
        };
        let total = members.len();
        let mut making = futures::stream::iter(members)
            .map(|(role, workspace)| async move {
                let made = match &request.golden {
                    Some((source, snapshot)) => {
                        let fork = ForkRequest {
                            source: source.clone(),
                            snapshot: snapshot.clone(),
                            new_name: Some(workspace),
                            setup_commands: Vec::new(),
                        };
                        self.fork(fork, &Progress::silent()).await.map(drop)
                    }
                    None => {
                        let create = CreateRequest { name: Some(workspace), ..CreateRequest::default() };
                        self.create(create, &Progress::silent()).await.map(drop)
                    }
                };
                made.map_err(|source| TeamError::Member {
                    team: request.name.clone(),
                    role,
                    source: Box::new(source),
                })
            })
            .buffer_unordered(AT_ONCE);
        let mut done = 0;
        while let Some(made) = making.next().await {
            made?;
            done += 1;
            progress
                .report(&format!("{done} of {total} members are there"), Some(done as f32 / total as f32));
        }
        Ok(())
    }

    async fn set_ready(&self, name: &TeamName) -> Result<TeamInfo, OpError> {
        self.shared().change(|registry| {
            if let Some(team) = registry.teams.get_mut(name) {
                team.state = TeamState::Ready;
                team.members.iter_mut().for_each(|member| member.status = AgentStatus::Ready);
            }
        });
        if let Err(error) = self.shared().save().await {
            self.dissolve(name).await?;
            return Err(OpError::Ledger(error));
        }
        self.team_info(name.as_str())
    }

    /// Destroys a team, the teams below it first, with all their machines.
    pub async fn destroy_team(&self, name: &str) -> Result<TeamName, OpError> {
        self.refuse_when_closing()?;
        let name = self.owned_team(name)?;
        // Once begun it is done, whoever waits for it.
        self.guarded(|session, _| async move {
            let _call = session.begin_call();
            session.dissolve(&name).await?;
            Ok(name)
        })
        .await
    }

    /// What a team is and who is in it. Everybody may look.
    pub fn team_info(&self, name: &str) -> Result<TeamInfo, OpError> {
        let state = self.shared().state();
        let (name, _) = state.registry.teams.find(name).map_err(TeamError::from)?;
        Ok(self.view_team(&state.registry, name))
    }

    pub fn teams(&self) -> Vec<TeamInfo> {
        let state = self.shared().state();
        let names: Vec<_> = state.registry.teams.iter().map(|(name, _)| name).collect();
        names.into_iter().map(|name| self.view_team(&state.registry, name)).collect()
    }

    fn view_team(&self, registry: &crate::registry::Registry, name: &TeamName) -> TeamInfo {
        let teams = &registry.teams;
        let member = |member: &agentiso_core::team::Member| MemberInfo {
            name: member.name.clone(),
            role: member.role.clone(),
            status: member.status,
            workspace: registry
                .find(&WorkspaceRef::Name(member.workspace.to_string()))
                .ok()
                .map(|workspace| self.view(registry, workspace)),
        };
        let team = teams.get(name);
        TeamInfo {
            name: name.clone(),
            state: team.map_or(TeamState::Destroyed, |team| team.state),
            created_at: team.map_or(jiff::Timestamp::UNIX_EPOCH, |team| team.created_at),
            max_vms: team.map_or(0, |team| team.max_vms),
            parent: team.and_then(|team| team.parent.clone()),
            nesting_depth: teams.depth(name),
            members: team.into_iter().flat_map(|team| team.members.iter().map(member)).collect(),
        }
    }

    fn owned_team(&self, name: &str) -> Result<TeamName, OpError> {
        self.shared().change(|registry| {
            registry.own_team(name, self.id(), self.kind(), Instant::now()).map(|(name, _)| name)
        })
    }

    /// Sends a message from one member to another, or to all. It is on disk when this returns.
    pub async fn send_message(
        &self,
        team: &str,
        from: &str,
        to: &str,
        content: String,
        message_type: String,
    ) -> Result<Message, OpError> {
        let _call = self.begin_call();
        let message = Message {
            message_id: Uuid::new_v4(),
            from: from.to_owned(),
            to: to.to_owned(),
            content,
            message_type,
            timestamp: jiff::Timestamp::now(),
        };
        self.shared().change(|registry| {
            let (_, team) = registry.own_team(team, self.id(), self.kind(), Instant::now())?;
            team.deliver(&message).map_err(TeamError::from)?;
            Ok::<_, OpError>(())
        })?;
        self.shared().save().await.map_err(OpError::Ledger)?;
        Ok(message)
    }

    /// Takes a member's oldest messages. What was taken is not given again, also not after a restart.
    pub async fn receive_messages(
        &self,
        team: &str,
        agent: &str,
        limit: usize,
    ) -> Result<Vec<Message>, OpError> {
        let _call = self.begin_call();
        let messages = self.shared().change(|registry| {
            let (_, team) = registry.own_team(team, self.id(), self.kind(), Instant::now())?;
            team.check_member(agent).map_err(TeamError::from)?;
            Ok::<_, OpError>(team.member_mut(agent).map(|member| member.mail.take(limit)).unwrap_or_default())
        })?;
        if !messages.is_empty() {
            self.shared().save().await.map_err(OpError::Ledger)?;
        }
        Ok(messages)
    }

    /// Removes a team with all below it. A team whose machines cannot all be removed stays, so that they are not
    /// forgotten.
    async fn dissolve(&self, name: &TeamName) -> Result<(), OpError> {
        let teams = self.shared().change(|registry| {
            let teams = registry.teams.subtree(name);
            for team in &teams {
                if let Some(team) = registry.teams.get_mut(team) {
                    team.state = TeamState::Completing;
                }
            }
            teams
        });
        self.shared().save_or_warn("a team is being destroyed").await;
        for team in teams {
            let left = self.destroy_members(&team).await;
            if left > 0 {
                return Err(TeamError::Left { team, left }.into());
            }
            self.shared().change(|registry| drop(registry.teams.remove(&team)));
            self.shared().save_or_warn("a team is gone").await;
        }
        Ok(())
    }

    /// How many are left.
    async fn destroy_members(&self, team: &TeamName) -> usize {
        let machines: Vec<_> = {
            let state = self.shared().state();
            let members = state.registry.teams.get(team).into_iter().flat_map(|team| &team.members);
            members.map(|member| WorkspaceRef::Name(member.workspace.to_string())).collect()
        };
        let destroyed = machines.iter().map(|machine| async move {
            match self.destroy(machine).await {
                Ok(_) | Err(OpError::NotFound { .. }) => true,
                Err(error) => {
                    tracing::warn!(%machine, %error, "a member of a team could not be destroyed");
                    false
                }
            }
        });
        futures::future::join_all(destroyed).await.into_iter().filter(|destroyed| !destroyed).count()
    }
}

/// Teams that a crash left half made or half destroyed go.
pub(crate) async fn recover(shared: std::sync::Arc<Shared>) {
    let unfinished: Vec<TeamName> = {
        let state = shared.state();
        let half = |state: TeamState| matches!(state, TeamState::Creating | TeamState::Completing);
        state
            .registry
            .teams
            .iter()
            .filter(|(_, team)| half(team.state))
            .map(|(name, _)| name.clone())
            .collect()
    };
    let session = Session::open(shared, crate::registry::SessionKind::Shell);
    for team in unfinished {
        if let Err(error) = session.dissolve(&team).await {
            tracing::error!(%team, %error, "a team that was not finished is left");
        }
    }
}
