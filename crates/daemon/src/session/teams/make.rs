//! Creates teams and destroys them, with all their workspaces.

use std::time::Instant;

use agentiso_core::lifecycle::Operation;
use agentiso_core::names::WorkspaceRef;
use agentiso_core::team::{Member, NewMember, NewTeam, TeamLimits, TeamName, TeamState};
use futures::StreamExt;
use uuid::Uuid;

use super::{RoleRequest, TeamInfo, TeamRequest};
use super::{cards, inside};
use crate::error::{OpError, TeamError};
use crate::info::{CreateRequest, ForkRequest};
use crate::session::Session;
use crate::vms::Progress;

/// Members that start at once: more would only wait for each other.
const MAX_PARALLEL: usize = 4;

/// The reason why a team is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A client asked for it.
    Asked,
    /// It could not be made, or a crash left it half-made.
    Undone,
}

impl Session {
    /// Creates a team with all its workspaces, or nothing. Dropping the future undoes it.
    pub async fn create_team(
        &self,
        mut request: TeamRequest,
        progress: &Progress,
    ) -> Result<TeamInfo, OpError> {
        self.refuse_when_closing()?;
        if let Some((golden, snapshot)) = &mut request.golden {
            let (found, ..) = self.accepted_snapshot(golden, snapshot, Operation::UseSnapshots)?;
            // The id is used because another workspace may have the name by the time the last member is forked.
            *golden = WorkspaceRef::Id(found.id);
        }
        let progress = progress.clone();
        self.guarded(|session, stop| async move {
            let _call = session.begin_call();
            session.reserve_team(&request)?;
            let filled = match session.shared().save().await {
                Ok(()) => {
                    cards::make(session.shared(), &request.name).await;
                    stop.run_until_cancelled(session.create_members(&request, &progress)).await
                }
                Err(error) => Some(Err(OpError::Ledger(error))),
            };
            let made = match filled {
                Some(Ok(())) if !stop.is_cancelled() => session.set_ready(&request.name).await,
                Some(Err(error)) => Err(error),
                Some(Ok(())) | None => Err(OpError::Cancelled),
            };
            if made.is_err()
                && let Err(error) = session.dissolve(&request.name, Cause::Undone, false).await
            {
                tracing::error!(team = %request.name, %error, "cannot remove all of a team that could not be created");
            }
            made
        })
        .await
    }

    fn reserve_team(&self, request: &TeamRequest) -> Result<(), OpError> {
        let member = |role: &RoleRequest| {
            let digits = Uuid::new_v4().as_u128() as u16;
            NewMember {
                name: role.name.clone(),
                role: role.role.clone(),
                skills: role.skills.clone(),
                description: role.description.clone(),
                workspace: request.name.member_workspace(&role.name, digits),
            }
        };
        let new = NewTeam {
            name: request.name.clone(),
            owner: self.id().clone(),
            max_vms: request.max_vms,
            parent: request.parent.clone(),
            roles: request.roles.iter().map(member).collect(),
            created_at: jiff::Timestamp::now(),
        };
        let resources = &self.shared().config.resources;
        let limits = TeamLimits {
            max_vms_per_team: resources.max_vms_per_team,
            max_nesting_depth: resources.max_nesting_depth,
        };
        self.shared().change(|registry| {
            if let Some(parent) = &request.parent {
                registry.own_team(parent.as_str(), self.id(), self.kind(), false, Instant::now())?;
            }
            registry.admit_workspaces(new.roles.len() as u64)?;
            // Members may take VMs from the warm pool, which are counted already and thus twice here: a host that has a
            // warm pool has room for both.
            registry.admit_vms(new.roles.len() as u64)?;
            registry.teams.reserve(new, limits).map_err(TeamError::from)?;
            Ok::<_, OpError>(())
        })?;
        // Members of the parent team share a network group with the new ones.
        self.shared().regroup();
        Ok(())
    }

    /// Creates the workspaces of all members. The first failure ends it; workspaces made by then remain.
    async fn create_members(&self, request: &TeamRequest, progress: &Progress) -> Result<(), OpError> {
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
            .buffer_unordered(MAX_PARALLEL);
        let mut done = 0;
        while let Some(made) = making.next().await {
            made?;
            done += 1;
            progress
                .report(&format!("{done} of {total} members are ready"), Some(done as f32 / total as f32));
        }
        Ok(())
    }

    async fn set_ready(&self, name: &TeamName) -> Result<TeamInfo, OpError> {
        self.shared().change(|registry| {
            if let Some(team) = registry.teams.get_mut(name) {
                team.state = TeamState::Ready;
                team.members.iter_mut().for_each(Member::set_ready);
            }
        });
        self.shared().save().await.map_err(OpError::Ledger)?;
        cards::write(self.shared(), name, None).await;
        let info = self.team_info(name.as_str())?;
        let vms = info.members.iter().filter_map(|member| member.workspace.as_ref());
        vms.for_each(|vm| inside::attend(self.shared(), vm.id));
        Ok(info)
    }

    /// Destroys a team with all its workspaces, and the teams below it first. With `force` it also destroys a team
    /// whose owner is connected but has been silent for long enough.
    pub async fn destroy_team(&self, name: &str, force: bool) -> Result<TeamName, OpError> {
        self.refuse_when_closing()?;
        let name = self.shared().change(|registry| {
            let now = Instant::now();
            registry.own_team(name, self.id(), self.kind(), force, now).map(|(name, _)| name)
        })?;
        // Once begun it goes to its end, even if the client gives up.
        self.guarded(|session, _| async move {
            let _call = session.begin_call();
            session.dissolve(&name, Cause::Asked, force).await?;
            Ok(name)
        })
        .await
    }

    /// Checks that this session may use a team, and returns the team's name.
    pub fn own_team(&self, name: &str) -> Result<TeamName, OpError> {
        self.shared().change(|registry| {
            registry.own_team(name, self.id(), self.kind(), false, Instant::now()).map(|(name, _)| name)
        })
    }

    /// Removes a team and all teams below it. A team stays if a workspace of it cannot be removed, so that the
    /// workspace is not forgotten.
    pub(super) async fn dissolve(&self, name: &TeamName, cause: Cause, force: bool) -> Result<(), OpError> {
        let shared = self.shared();
        let begin = |registry: &mut crate::registry::Registry| {
            registry.teams.begin_end(name, cause == Cause::Undone).map_err(TeamError::from)
        };
        let teams = shared.change(begin)?;
        shared.save_or_warn("a team is being destroyed").await;
        if cause == Cause::Undone {
            cards::remove(shared, name).await;
        }
        for team in teams {
            let left = self.destroy_members(&team, force).await;
            if left > 0 {
                return Err(TeamError::Left { team, left }.into());
            }
            self.discard_mail(&team).await;
            shared.change(|registry| {
                registry.teams.remove(&team);
                shared.metrics.forget_team(&team);
            });
            shared.regroup();
            shared.save_or_warn("a team was destroyed").await;
        }
        Ok(())
    }

    /// Removes the mail of a team that is being destroyed, while the ledger still lists the team: a crash in between
    /// leaves no mail without a team.
    async fn discard_mail(&self, team: &TeamName) {
        let found = {
            let state = self.shared().state();
            let found = state.registry.teams.get(team);
            found.map(|team| {
                let roles: Vec<_> = team.members.iter().map(|member| member.name.clone()).collect();
                (team.created_at, roles)
            })
        };
        if let Some((created_at, roles)) = found {
            self.shared().mail.discard(team, created_at, &roles).await;
        }
    }

    /// Destroys the members' workspaces and returns how many could not be destroyed.
    async fn destroy_members(&self, team: &TeamName, force: bool) -> usize {
        let vms: Vec<_> = {
            let state = self.shared().state();
            let members = state.registry.teams.get(team).into_iter().flat_map(|team| &team.members);
            members.filter_map(|member| member.workspace_id.map(WorkspaceRef::Id)).collect()
        };
        let destroyed = vms.iter().map(|vm| async move {
            match self.destroy_by_force(vm, force).await {
                Ok(_) | Err(OpError::NotFound { .. }) => true,
                Err(error) => {
                    tracing::warn!(%vm, %error, "cannot destroy a member of a team");
                    false
                }
            }
        });
        futures::future::join_all(destroyed).await.into_iter().filter(|destroyed| !destroyed).count()
    }
}
