//! Makes teams and destroys them, with all their machines.

use std::time::Instant;

use agentiso_core::lifecycle::Operation;
use agentiso_core::names::WorkspaceRef;
use agentiso_core::team::{Member, NewMember, NewTeam, TeamLimits, TeamName, TeamState};
use futures::StreamExt;
use uuid::Uuid;

use super::{RoleRequest, TeamError, TeamInfo, TeamRequest};
use super::{cards, inside};
use crate::error::OpError;
use crate::info::{CreateRequest, ForkRequest};
use crate::machines::Progress;
use crate::session::Session;

/// Members that come up at once: more would only wait for each other.
const AT_ONCE: usize = 4;

/// Why a team is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Somebody wants it to go.
    Asked,
    /// It could not be made, or a crash left it half made.
    Undone,
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
                Ok(()) => {
                    cards::make(session.shared(), &request.name).await;
                    stop.run_until_cancelled(session.fill(&request, &progress)).await
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
                tracing::error!(team = %request.name, %error, "a team that could not be made is not quite gone");
            }
            made
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
                registry.own_team(parent.as_str(), self.id(), self.kind(), false, Instant::now())?;
            }
            registry.admit_workspaces(new.roles.len() as u64)?;
            // Members may be given machines of the pool, which are counted already; whoever has a pool has room for both.
            registry.admit_machines(new.roles.len() as u64)?;
            registry.teams.reserve(new, limits).map_err(TeamError::from)?;
            Ok::<_, OpError>(())
        })?;
        // Members of the team above are near to those that come.
        self.shared().regroup();
        Ok(())
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
                team.members.iter_mut().for_each(Member::set_ready);
            }
        });
        self.shared().save().await.map_err(OpError::Ledger)?;
        cards::write(self.shared(), name, None).await;
        let info = self.team_info(name.as_str())?;
        let machines = info.members.iter().filter_map(|member| member.workspace.as_ref());
        machines.for_each(|machine| inside::attend(self.shared(), machine.id));
        Ok(info)
    }

    /// Destroys a team, the teams below it first, with all their machines. With `force` also one whose owner is connected
    /// but has been silent for long enough.
    pub async fn destroy_team(&self, name: &str, force: bool) -> Result<TeamName, OpError> {
        self.refuse_when_closing()?;
        let name = self.shared().change(|registry| {
            let now = Instant::now();
            registry.own_team(name, self.id(), self.kind(), force, now).map(|(name, _)| name)
        })?;
        // Once begun it is done, whoever waits for it.
        self.guarded(|session, _| async move {
            let _call = session.begin_call();
            session.dissolve(&name, Cause::Asked, force).await?;
            Ok(name)
        })
        .await
    }

    /// A team that this session may do something with.
    pub fn own_team(&self, name: &str) -> Result<TeamName, OpError> {
        self.shared().change(|registry| {
            registry.own_team(name, self.id(), self.kind(), false, Instant::now()).map(|(name, _)| name)
        })
    }

    /// Removes a team with all below it. A team whose machines cannot all be removed stays, so that they are not
    /// forgotten.
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
            shared.save_or_warn("a team is gone").await;
        }
        Ok(())
    }

    /// Removes the mail of a team that is going, while the ledger still says that it is: a crash in between leaves
    /// nothing behind that nobody knows of.
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

    /// How many are left.
    async fn destroy_members(&self, team: &TeamName, force: bool) -> usize {
        let machines: Vec<_> = {
            let state = self.shared().state();
            let members = state.registry.teams.get(team).into_iter().flat_map(|team| &team.members);
            members.filter_map(|member| member.workspace_id.map(WorkspaceRef::Id)).collect()
        };
        let destroyed = machines.iter().map(|machine| async move {
            match self.destroy_by_force(machine, force).await {
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
