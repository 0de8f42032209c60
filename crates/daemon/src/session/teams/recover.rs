//! What becomes of teams when a daemon finds them in its ledger, or a person brings them back.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::team::{Outcome, RoleName, TaskStep, Team, TeamName, TeamState, UnderWay};

use super::inside;
use super::make::Cause;
use super::tasks::{self, Errand};
use crate::registry::SessionKind;
use crate::session::Session;
use crate::shared::Shared;

/// What is found of teams before anybody can begin something else.
#[derive(Debug, Default)]
pub(crate) struct Found {
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
    let mut found = Found::default();
    for (name, team) in shared.state().registry.teams.iter() {
        found.add(shared, name, team);
    }
    take_up(shared, found);
}

/// Looks at a team in quarantine whose mail was loaded. It must not be entered yet: tasks that somebody begins then are
/// not to be taken for interrupted ones.
pub(crate) fn look(shared: &Shared, name: &TeamName, team: &Team) -> Found {
    let mut found = Found::default();
    found.add(shared, name, team);
    found
}

pub(crate) fn take_up(shared: &Arc<Shared>, found: Found) {
    for (errand, job) in found.running {
        tasks::spawn(shared, tasks::resume(Arc::clone(shared), errand, job));
    }
    found.machines.into_iter().for_each(|machine| inside::attend(shared, machine));
    let rest = Arc::clone(shared);
    shared.tasks.spawn(async move {
        for errand in found.interrupted {
            let reason = "the daemon ended while the task was being started; it may have run or not";
            let ended = errand.end(&rest, Outcome::failed(reason));
            // What cannot be written while the daemon ends is found by the next one.
            rest.closing.run_until_cancelled(ended).await;
        }
        for (team, role) in found.members {
            tasks::set_going(&rest, &team, &role);
        }
        let session = Session::open(Arc::clone(&rest), SessionKind::Shell);
        for (team, cause) in found.unfinished {
            if let Err(error) = session.dissolve(&team, cause, false).await {
                tracing::error!(%team, %error, "a team that was not finished is left");
            }
        }
    });
}

impl Found {
    fn add(&mut self, shared: &Shared, name: &TeamName, team: &Team) {
        match team.state {
            TeamState::Creating => self.unfinished.push((name.clone(), Cause::Undone)),
            TeamState::Completing | TeamState::Destroyed => {
                self.unfinished.push((name.clone(), Cause::Asked));
            }
            TeamState::Ready | TeamState::Working => {
                self.machines.extend(team.members.iter().filter_map(|member| member.workspace_id));
            }
        }
        for member in &team.members {
            self.members.push((name.clone(), member.name.clone()));
            let slot = shared.mail.slot(name, team.created_at, &member.name);
            for task in slot.tasks_at_start() {
                let errand = Errand {
                    team: name.clone(),
                    role: member.name.clone(),
                    message_id: task.message_id,
                    workspace: member.workspace_id,
                };
                match task.step {
                    TaskStep::Waiting { .. } => {}
                    TaskStep::Starting => self.interrupted.push(errand),
                    TaskStep::Running(job) => self.running.push((errand, job)),
                }
            }
        }
    }
}
