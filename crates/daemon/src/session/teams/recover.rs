//! Resumes teams that a daemon finds in its ledger, or that a user recovers from quarantine.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::team::{Outcome, RoleName, TaskStep, Team, TeamName, TeamState, UnderWay};

use super::inside;
use super::make::Cause;
use super::tasks::{self, MemberTask};
use crate::registry::SessionKind;
use crate::session::Session;
use crate::shared::Shared;

/// The unfinished work of teams, collected before any new work can begin.
#[derive(Debug, Default)]
pub(crate) struct UnfinishedWork {
    /// Half-made or half-destroyed.
    to_destroy: Vec<(TeamName, Cause)>,
    /// Tasks that may have been started.
    interrupted: Vec<MemberTask>,
    running: Vec<(MemberTask, UnderWay)>,
    members: Vec<(TeamName, RoleName)>,
    vms: Vec<WorkspaceId>,
}

/// Destroys the teams that a crash left half-made or half-destroyed, and resumes the tasks of all others.
pub(crate) fn recover(shared: &Arc<Shared>) {
    let mut found = UnfinishedWork::default();
    for (name, team) in shared.state().registry.teams.iter() {
        found.add(shared, name, team);
    }
    resume_work(shared, found);
}

/// Collects the unfinished work of a team in quarantine whose mail was loaded. The team must not be in the registry
/// yet: otherwise a task that begins meanwhile would be taken for an interrupted one.
pub(crate) fn find_unfinished(shared: &Shared, name: &TeamName, team: &Team) -> UnfinishedWork {
    let mut found = UnfinishedWork::default();
    found.add(shared, name, team);
    found
}

pub(crate) fn resume_work(shared: &Arc<Shared>, found: UnfinishedWork) {
    for (task, job) in found.running {
        tasks::spawn(shared, tasks::resume(Arc::clone(shared), task, job));
    }
    found.vms.into_iter().for_each(|vm| inside::attend(shared, vm));
    let rest = Arc::clone(shared);
    shared.tasks.spawn(async move {
        for task in found.interrupted {
            let reason = "the daemon ended while the task was being started; it may or may not have run";
            let ended = task.end(&rest, Outcome::failed(reason));
            // If the daemon ends before this is written, the next daemon finds the task again.
            rest.closing.run_until_cancelled(ended).await;
        }
        for (team, role) in found.members {
            tasks::start_waiting_tasks(&rest, &team, &role);
        }
        let session = Session::open(Arc::clone(&rest), SessionKind::Shell);
        for (team, cause) in found.to_destroy {
            if let Err(error) = session.dissolve(&team, cause, false).await {
                tracing::error!(%team, %error, "cannot remove an unfinished team");
            }
        }
    });
}

impl UnfinishedWork {
    fn add(&mut self, shared: &Shared, name: &TeamName, team: &Team) {
        match team.state {
            TeamState::Creating => self.to_destroy.push((name.clone(), Cause::Undone)),
            TeamState::Completing | TeamState::Destroyed => {
                self.to_destroy.push((name.clone(), Cause::Asked));
            }
            TeamState::Ready | TeamState::Working => {
                self.vms.extend(team.members.iter().filter_map(|member| member.workspace_id));
            }
        }
        for member in &team.members {
            self.members.push((name.clone(), member.name.clone()));
            let slot = shared.mail.slot(name, team.created_at, &member.name);
            for pending in slot.tasks_at_start() {
                let task = MemberTask {
                    team: name.clone(),
                    role: member.name.clone(),
                    message_id: pending.message_id,
                    workspace: member.workspace_id,
                };
                match pending.step {
                    TaskStep::Waiting { .. } => {}
                    TaskStep::Starting => self.interrupted.push(task),
                    TaskStep::Running(job) => self.running.push((task, job)),
                }
            }
        }
    }
}
