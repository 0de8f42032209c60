//! Carries out what members were assigned: as jobs of their machines, a few at once, to their end or their deadline.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::GuestPath;
use agentiso_core::team::{Assignment, Outcome, RoleName, TeamName};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::{cards, output};
use crate::error::OpError;
use crate::guest::Guest;
use crate::machines::{Command, JobQuery};
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

/// A job that was started.
#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    pub(super) job: u64,
    pub(super) machine: String,
    pub(super) deadline: Timestamp,
}

/// Begins as many of a member's tasks as its machine takes at once.
pub(super) fn set_going(shared: &Arc<Shared>, team: &TeamName, role: &RoleName) {
    while !shared.closing.is_cancelled() {
        let begun = shared.change(|registry| {
            let member = registry.teams.get_mut(team)?.member_mut(role.as_str())?;
            let (message_id, assignment) = member.begin_task()?;
            let workspace = member.workspace_id;
            Some((Errand { team: team.clone(), role: role.clone(), message_id, workspace }, assignment))
        });
        let Some((errand, assignment)) = begun else { return };
        let work = carry_out(Arc::clone(shared), errand, assignment);
        spawn(shared, work);
    }
}

/// The work ends when the daemon does: what is under way then is found again by the next one.
pub(super) fn spawn(shared: &Arc<Shared>, work: impl Future<Output = ()> + Send + 'static) {
    let closing = shared.closing.clone();
    shared.tasks.spawn(async move {
        closing.run_until_cancelled(work).await;
    });
}

async fn carry_out(shared: Arc<Shared>, errand: Errand, assignment: Assignment) {
    shared.save_or_warn("a task begins").await;
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
        let shared = session.shared();
        shared.change(|registry| {
            let team = registry.teams.get_mut(&self.team);
            if let Some(member) = team.and_then(|team| team.member_mut(self.role.as_str())) {
                member.task_runs(&self.message_id, job, started.machine.clone(), deadline);
            }
        });
        shared.save_or_warn("a task has begun").await;
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

    pub(super) async fn end(&self, shared: &Arc<Shared>, outcome: Outcome) {
        let known = shared.change(|registry| {
            let team = registry.teams.get_mut(&self.team);
            team.and_then(|team| team.member_mut(self.role.as_str()))
                .is_some_and(|member| member.end_task(&self.message_id, outcome))
        });
        if !known {
            return;
        }
        shared.save_or_warn("a task has ended").await;
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
