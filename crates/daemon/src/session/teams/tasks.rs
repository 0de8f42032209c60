//! Runs the tasks that members were assigned: as jobs in their VMs, a few at once, until they end or reach their
//! deadline.

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
use crate::mail::{Inbox, MailStoreError, Slot};
use crate::registry::SessionKind;
use crate::session::Guest;
use crate::session::Session;
use crate::shared::Shared;
use crate::vms::{Command, JobQuery};

/// Directory in which a task runs if its assignment names none.
const WORKDIR: &str = "/workspace";

/// The longest time that one poll waits for the end of a job.
const POLL_WAIT: Duration = Duration::from_secs(30);

/// Delay between attempts to reach a VM that does not answer: it cannot notify the daemon.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// SIGKILL.
const KILL: i32 = 9;

/// A task under way, and the member that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct MemberTask {
    pub(super) team: TeamName,
    pub(super) role: RoleName,
    pub(super) message_id: Uuid,
    /// `None`: the member's workspace is gone.
    pub(super) workspace: Option<WorkspaceId>,
}

/// Starts as many of a member's tasks as its VM runs at once.
pub(super) fn start_waiting_tasks(shared: &Arc<Shared>, team: &TeamName, role: &RoleName) {
    spawn(shared, begin_all(Arc::clone(shared), team.clone(), role.clone()));
}

async fn begin_all(shared: Arc<Shared>, team: TeamName, role: RoleName) {
    while let Some((slot, workspace)) = find_inbox(&shared, &team, &role) {
        match slot.run(Inbox::begin).await {
            Ok(Some(begun)) => {
                let message_id = begun.message_id;
                let task = MemberTask { team: team.clone(), role: role.clone(), message_id, workspace };
                spawn(&shared, run_task(Arc::clone(&shared), task, begun.assignment));
            }
            Ok(None) | Err(MailStoreError::Closed) => return,
            // The task waits in the inbox until its start can be recorded.
            Err(error) => {
                tracing::error!(%team, %role, %error, "cannot start a task yet; will retry");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// The inbox of a member, and its workspace. `None` for a team that is being destroyed.
fn find_inbox(shared: &Shared, team: &TeamName, role: &RoleName) -> Option<(Arc<Slot>, Option<WorkspaceId>)> {
    let state = shared.state();
    let found = state.registry.teams.get(team).filter(|team| !team.is_going())?;
    let member = found.member(role.as_str())?;
    Some((shared.mail.slot(team, found.created_at, role), member.workspace_id))
}

/// Updates a member's number of pending tasks in the registry, and the result of a task that has just ended. Saving the
/// ledger can wait: at the next start the inbox says the same.
pub(super) fn update_pending(
    shared: &Shared,
    team: &TeamName,
    role: &RoleName,
    pending: usize,
    ended: Option<bool>,
) {
    shared.change(|registry| {
        let found = registry.teams.get_mut(team).and_then(|team| team.member_mut(role.as_str()));
        if let Some(member) = found {
            member.set_pending_tasks(pending, ended);
        }
    });
    shared.save_later();
}

/// Spawns work that ends with the daemon; the next daemon resumes it.
pub(super) fn spawn(shared: &Arc<Shared>, work: impl Future<Output = ()> + Send + 'static) {
    let closing = shared.closing.clone();
    shared.tasks.spawn(async move {
        closing.run_until_cancelled(work).await;
    });
}

async fn run_task(shared: Arc<Shared>, task: MemberTask, assignment: Assignment) {
    cards::write(&shared, &task.team, Some(&task.role)).await;
    let session = Session::open(Arc::clone(&shared), SessionKind::Shell);
    let outcome = match task.start(&session, assignment).await {
        Ok((guest, job)) => wait_for_end(&guest, &job).await,
        Err(error) => Outcome::failed(error),
    };
    task.end(&shared, outcome).await;
}

/// Resumes a job that an earlier daemon started.
pub(super) async fn resume(shared: Arc<Shared>, task: MemberTask, job: UnderWay) {
    let session = Session::open(Arc::clone(&shared), SessionKind::Shell);
    let outcome = match task.wait_for_guest(&session, &job).await {
        Ok(guest) if guest.run() == job.vm => wait_for_end(&guest, &job).await,
        Ok(_) => Outcome::failed("its VM was stopped or restored before the task ended"),
        Err(error) => Outcome::failed(format!("the task was interrupted: {error}")),
    };
    task.end(&shared, outcome).await;
}

impl MemberTask {
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
        let started = UnderWay { job, vm: guest.run(), deadline };
        if let Some((slot, _)) = find_inbox(session.shared(), &self.team, &self.role) {
            let (id, job) = (self.message_id, started.clone());
            if let Err(error) = slot.run(move |inbox| inbox.task_runs(id, &job)).await {
                // If the daemon ends before the task does, the next daemon can only say that the task may have run.
                tracing::warn!(team = %self.team, role = %self.role, %error, "cannot store that a task is running; the next daemon would not find it");
            }
        }
        Ok((guest, started))
    }

    /// Waits for the guest, because finding a VM again after a restart may take a while.
    async fn wait_for_guest(&self, session: &Session, job: &UnderWay) -> Result<Guest, OpError> {
        loop {
            match self.guest(session).await {
                Err(error) if error.retryable() && !time_left(job.deadline).is_zero() => {
                    tracing::debug!(%error, "the VM of a task is not ready yet");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                found => return found,
            }
        }
    }

    /// Stores the result, and returns once it is on disk. Until then the task counts as under way, so that the next
    /// daemon looks for its result again.
    pub(super) async fn end(&self, shared: &Arc<Shared>, outcome: Outcome) {
        while let Some((slot, _)) = find_inbox(shared, &self.team, &self.role) {
            let (task, ours, outcome) = (self.clone(), Arc::clone(shared), outcome.clone());
            let success = outcome.exit_code == 0;
            let end = move |inbox: &mut Inbox| {
                let known = inbox.end(task.message_id, outcome)?;
                if known {
                    update_pending(&ours, &task.team, &task.role, inbox.pending().len(), Some(success));
                }
                Ok(known)
            };
            match slot.run(end).await {
                Ok(true) => break,
                Ok(false) | Err(MailStoreError::Closed) => return,
                Err(error) => {
                    tracing::error!(team = %self.team, role = %self.role, %error, "cannot store a result yet; will retry");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
        cards::write(shared, &self.team, Some(&self.role)).await;
        start_waiting_tasks(shared, &self.team, &self.role);
    }
}

/// Waits for a job's end, and kills it at its deadline.
async fn wait_for_end(guest: &Guest, job: &UnderWay) -> Outcome {
    loop {
        let left = time_left(job.deadline);
        match guest.poll_job(job_query(job, left.min(POLL_WAIT))).await {
            Ok(state) if !state.running => return output::ended(&state),
            Ok(state) if left.is_zero() => {
                if let Err(error) = guest.kill_job(job.job, KILL).await {
                    tracing::warn!(%error, "cannot kill a task that timed out");
                }
                let last = guest.poll_job(job_query(job, Duration::ZERO)).await;
                return output::timed_out(last.as_ref().unwrap_or(&state));
            }
            Ok(_) => {}
            Err(error) if error.retryable() && !left.is_zero() => {
                tracing::debug!(%error, "the VM of a task does not answer");
                tokio::time::sleep(RETRY_DELAY.min(left)).await;
            }
            Err(error) => return Outcome::failed(format!("the task was interrupted: {error}")),
        }
    }
}

fn job_query(job: &UnderWay, wait: Duration) -> JobQuery {
    JobQuery { id: job.job, head_bytes: output::HALF, tail_bytes: output::HALF, wait, ..JobQuery::default() }
}

fn time_left(deadline: Timestamp) -> Duration {
    Duration::try_from(deadline.duration_since(Timestamp::now())).unwrap_or_default()
}
