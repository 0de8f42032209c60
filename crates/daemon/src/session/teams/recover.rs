//! What becomes of teams when a daemon finds them in its ledger.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::team::{Outcome, RoleName, TaskStep, TeamName, TeamState};

use super::inside;
use super::make::Cause;
use super::tasks::{self, Errand, UnderWay};
use crate::registry::SessionKind;
use crate::session::Session;
use crate::shared::Shared;

/// What is found at the start, before anybody can begin something else.
#[derive(Debug, Default)]
struct Found {
    /// Half made or half destroyed.
    unfinished: Vec<(TeamName, Cause)>,
    /// Tasks that may have been started.
    interrupted: Vec<Errand>,
    running: Vec<(Errand, UnderWay)>,
    members: Vec<(TeamName, RoleName)>,
    machines: Vec<WorkspaceId>,
}

/// Teams that a crash left half made or half destroyed go; tasks go on.
pub(crate) fn recover(shared: &Arc<Shared>) {
    let found = look(shared);
    for (errand, job) in found.running {
        tasks::spawn(shared, tasks::resume(Arc::clone(shared), errand, job));
    }
    found.machines.into_iter().for_each(|machine| inside::attend(shared, machine));
    let rest = Arc::clone(shared);
    shared.tasks.spawn(async move {
        for errand in found.interrupted {
            let reason = "the daemon ended while the task was being started; it may have run or not";
            errand.end(&rest, Outcome::failed(reason)).await;
        }
        for (team, role) in found.members {
            tasks::set_going(&rest, &team, &role);
        }
        let session = Session::open(Arc::clone(&rest), SessionKind::Shell);
        for (team, cause) in found.unfinished {
            if let Err(error) = session.dissolve(&team, cause).await {
                tracing::error!(%team, %error, "a team that was not finished is left");
            }
        }
    });
}

fn look(shared: &Shared) -> Found {
    let mut found = Found::default();
    for (name, team) in shared.state().registry.teams.iter() {
        match team.state {
            TeamState::Creating => found.unfinished.push((name.clone(), Cause::Undone)),
            TeamState::Completing | TeamState::Destroyed => {
                found.unfinished.push((name.clone(), Cause::Asked));
            }
            TeamState::Ready | TeamState::Working => {
                found.machines.extend(team.members.iter().filter_map(|member| member.workspace_id));
            }
        }
        for member in &team.members {
            found.members.push((name.clone(), member.name.clone()));
            for task in member.tasks.pending() {
                let errand = Errand {
                    team: name.clone(),
                    role: member.name.clone(),
                    message_id: task.message_id,
                    workspace: member.workspace_id,
                };
                match &task.step {
                    TaskStep::Waiting { .. } => {}
                    TaskStep::Starting => found.interrupted.push(errand),
                    TaskStep::Running { job, machine, deadline } => {
                        let job = UnderWay { job: *job, machine: machine.clone(), deadline: *deadline };
                        found.running.push((errand, job));
                    }
                }
            }
        }
    }
    found
}
