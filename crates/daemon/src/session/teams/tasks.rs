//! Carries out what members were assigned: as jobs of their machines, a few at once, to their end or their deadline.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::GuestPath;
use agentiso_core::team::{Assignment, Outcome, RoleName, TeamName, UnderWay};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::{cards, output};
use crate::error::OpError;
use crate::guest::Guest;
use crate::machines::{Command, JobQuery};
use crate::mail::{Inbox, MailStoreError, Slot};
use crate::registry::SessionKind;
use crate::session::Session;
use crate::shared::Shared;

/// Where tasks run that do not say it.
const WORKDIR: &str = "/workspace";

/// How long the end of a job is waited for with one question.
const LOOK: Duration = Duration::from_secs(30);

/// Between two attempts to reach a machine that does not answer: it has nothing to tell us with.
const AGAIN: Duration = Duration::from_secs(1);

/// SIGKILL.
const KILL: i32 = 9;

/// A task under way, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub(super) team: TeamName,
    pub(super) role: RoleName,
    pub(super) message_id: Uuid,
    /// `None`: its machine is gone.
    pub(super) workspace: Option<WorkspaceId>,
}

/// Has as many of a member's tasks begin as its machine takes at once.
pub(super) fn set_going(shared: &Arc<Shared>, team: &TeamName, role: &RoleName) {
    spawn(shared, begin_all(Arc::clone(shared), team.clone(), role.clone()));
}

async fn begin_all(shared: Arc<Shared>, team: TeamName, role: RoleName) {
    while let Some((slot, workspace)) = place(&shared, &team, &role) {
        match slot.run(Inbox::begin).await {
            Ok(Some(begun)) => {
                let message_id = begun.message_id;
                let errand = Errand { team: team.clone(), role: role.clone(), message_id, workspace };
                spawn(&shared, carry_out(Arc::clone(&shared), errand, begun.assignment));
            }
            Ok(None) | Err(MailStoreError::Closed) => return,
            // It waits where it is until it can be written down that it begins.
            Err(error) => {
                tracing::error!(%team, %role, %error, "a task cannot begin yet");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// The inbox of a member, and its machine. A team that is going has none any more.
fn place(shared: &Shared, team: &TeamName, role: &RoleName) -> Option<(Arc<Slot>, Option<WorkspaceId>)> {
    let state = shared.state();
    let found = state.registry.teams.get(team).filter(|team| !team.is_going())?;
    let member = found.member(role.as_str())?;
    Some((shared.mail.slot(team, found.created_at, role), member.workspace_id))
}

/// Has the registry know how many tasks a member has to do, and how one ended that has just ended. The ledger may be told
/// later: the inbox says the same at the next start.
pub(super) fn count(shared: &Shared, team: &TeamName, role: &RoleName, pending: usize, ended: Option<bool>) {
    shared.change(|registry| {
        let found = registry.teams.get_mut(team).and_then(|team| team.member_mut(role.as_str()));
        if let Some(member) = found {
            member.set_pending_tasks(pending, ended);
        }
    });
    shared.save_later();
}

/// The work ends when the daemon does: what is under way then is found again by the next one.
pub(super) fn spawn(shared: &Arc<Shared>, work: impl Future<Output = ()> + Send + 'static) {
    let closing = shared.closing.clone();
    shared.tasks.spawn(async move {
        closing.run_until_cancelled(work).await;
    });
}

async fn carry_out(shared: Arc<Shared>, errand: Errand, assignment: Assignment) {
    cards::write(&shared, &errand.team, Some(&errand.role)).await;
    let session = Session::open(Arc::clone(&shared), SessionKind::Shell);
    let outcome = match errand.start(&session, assignment).await {
        Ok((guest, job)) => follow(&guest, &job).await,
        Err(error) => Outcome::failed(error),
    };
    errand.end(&shared, outcome).await;
}

/// Takes up a job that an earlier daemon started.
pub(super) async fn resume(shared: Arc<Shared>, errand: Errand, job: UnderWay) {
    let session = Session::open(Arc::clone(&shared), SessionKind::Shell);
    let outcome = match errand.find_again(&session, &job).await {
        Ok(guest) if guest.run() == job.machine => follow(&guest, &job).await,
        Ok(_) => Outcome::failed("its machine was stopped or restored before the task ended"),
        Err(error) => Outcome::failed(format!("the task was cut off: {error}")),
    };
    errand.end(&shared, outcome).await;
}

impl Errand {
    async fn guest(&self, session: &Session) -> Result<Guest, OpError> {
        let gone = || OpError::NotFound { wanted: self.role.to_string(), nearest: None, known: Vec::new() };
        session.guest(&WorkspaceRef::Id(self.workspace.ok_or_else(gone)?)).await
    }

    async fn start(
        &self,
        session: &Session,
        assignment: Assignment,
    ) -> Result<(Guest, UnderWay), Box<dyn std::error::Error + Send + Sync>> {
        let Assignment { command, workdir, env, timeout_secs, task_id: _ } = assignment;
        let workdir = Some(GuestPath::parse(workdir.as_deref().unwrap_or(WORKDIR))?);
        let guest = self.guest(session).await?;
        let job = guest.start_job(Command { command, workdir, env }).await?;
        let timeout = SignedDuration::from_secs(i64::try_from(timeout_secs).unwrap_or(i64::MAX));
        let deadline = Timestamp::now().checked_add(timeout).unwrap_or(Timestamp::MAX);
        let started = UnderWay { job, machine: guest.run(), deadline };
        if let Some((slot, _)) = place(session.shared(), &self.team, &self.role) {
            let (id, job) = (self.message_id, started.clone());
            if let Err(error) = slot.run(move |inbox| inbox.task_runs(id, &job)).await {
                // Should the daemon end before the task, the next one can only say that it may have run.
                tracing::warn!(team = %self.team, role = %self.role, %error, "how to find a task again is not stored");
            }
        }
        Ok((guest, started))
    }

    /// A machine that ran when the last daemon ended may take its time to be found.
    async fn find_again(&self, session: &Session, job: &UnderWay) -> Result<Guest, OpError> {
        loop {
            match self.guest(session).await {
                Err(error) if error.retryable() && !left_until(job.deadline).is_zero() => {
                    tracing::debug!(%error, "the machine of a task is not there yet");
                    tokio::time::sleep(AGAIN).await;
                }
                found => return found,
            }
        }
    }

    /// Returns once the result is on disk. Until then the task counts as under way, so that the next daemon looks for its
    /// result again.
    pub(super) async fn end(&self, shared: &Arc<Shared>, outcome: Outcome) {
        while let Some((slot, _)) = place(shared, &self.team, &self.role) {
            let (errand, ours, outcome) = (self.clone(), Arc::clone(shared), outcome.clone());
            let success = outcome.exit_code == 0;
            let end = move |inbox: &mut Inbox| {
                let known = inbox.end(errand.message_id, outcome)?;
                if known {
                    count(&ours, &errand.team, &errand.role, inbox.pending().len(), Some(success));
                }
                Ok(known)
            };
            match slot.run(end).await {
                Ok(true) => break,
                Ok(false) | Err(MailStoreError::Closed) => return,
                Err(error) => {
                    tracing::error!(team = %self.team, role = %self.role, %error, "a result cannot be stored yet");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        cards::write(shared, &self.team, Some(&self.role)).await;
        set_going(shared, &self.team, &self.role);
    }
}

/// Waits for a job's end; one that takes too long is killed.
async fn follow(guest: &Guest, job: &UnderWay) -> Outcome {
    loop {
        let left = left_until(job.deadline);
        match guest.poll_job(question(job, left.min(LOOK))).await {
            Ok(state) if !state.running => return output::ended(&state),
            Ok(state) if left.is_zero() => {
                if let Err(error) = guest.kill_job(job.job, KILL).await {
                    tracing::warn!(%error, "a task that takes too long could not be killed");
                }
                let last = guest.poll_job(question(job, Duration::ZERO)).await;
                return output::timed_out(last.as_ref().unwrap_or(&state));
            }
            Ok(_) => {}
            Err(error) if error.retryable() && !left.is_zero() => {
                tracing::debug!(%error, "the machine of a task does not answer");
                tokio::time::sleep(AGAIN.min(left)).await;
            }
            Err(error) => return Outcome::failed(format!("the task was cut off: {error}")),
        }
    }
}

fn question(job: &UnderWay, wait: Duration) -> JobQuery {
    JobQuery { id: job.job, head_bytes: output::HALF, tail_bytes: output::HALF, wait, ..JobQuery::default() }
}

fn left_until(deadline: Timestamp) -> Duration {
    Duration::try_from(deadline.duration_since(Timestamp::now())).unwrap_or_default()
}
