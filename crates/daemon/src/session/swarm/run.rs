//! Runs a swarm from its beginning to its end.

use std::time::{Duration, Instant};

use agentiso_core::ids::WorkspaceId;
use agentiso_core::lifecycle::Operation;
use agentiso_core::names::{NamePrefix, TaskName, WorkspaceRef};
use agentiso_core::paths::GuestPath;
use agentiso_git::merge::Strategy;
use futures::StreamExt;
use futures::future::join_all;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::request::{SwarmMerge, SwarmRequest};
use super::worker::{ForkedWorkers, Workers};
use crate::error::{OpError, SwarmError};
use crate::session::Guest;
use crate::session::Session;
use crate::session::git::{MergeRequest, Merged};
use crate::vms::{ExecOutcome, Progress};

/// Directory of the workers' repository.
const REPOSITORY: &str = "/workspace";

#[derive(Clone, Debug)]
pub struct SwarmDone {
    pub swarm_id: String,
    /// In the order of the request.
    pub tasks: Vec<TaskDone>,
    pub elapsed: Duration,
    pub workers_destroyed: usize,
    pub merge: Option<SwarmMerged>,
}

#[derive(Clone, Debug)]
pub struct TaskDone {
    pub name: TaskName,
    /// `None`: it was not forked.
    pub workspace: Option<WorkspaceId>,
    pub outcome: TaskOutcome,
    /// Run time of the command.
    pub elapsed: Duration,
}

#[derive(Clone, Debug)]
pub enum TaskOutcome {
    Ran(ExecOutcome),
    /// The command was not run to its end.
    Failed {
        reason: String,
    },
}

impl TaskDone {
    pub fn succeeded(&self) -> bool {
        matches!(&self.outcome, TaskOutcome::Ran(outcome) if !outcome.timed_out && outcome.exit_code == Some(0))
    }

    /// The exit code that a shell would report; -1 if the command was not run to its end.
    pub fn exit_code(&self) -> i32 {
        match &self.outcome {
            TaskOutcome::Failed { .. } => -1,
            TaskOutcome::Ran(outcome) => match (outcome.timed_out, outcome.exit_code, outcome.signal) {
                (false, Some(code), _) => code,
                (false, None, Some(signal)) => 128 + signal,
                (true, _, _) | (false, None, None) => -1,
            },
        }
    }
}

#[derive(Clone, Debug)]
pub struct SwarmMerged {
    pub strategy: Strategy,
    pub target: WorkspaceId,
    /// The merge, or the reason why there was none.
    pub result: Result<Merged, String>,
}

impl Session {
    /// Runs tasks in forks of a snapshot and merges the commits of those that succeeded. When this returns, or its
    /// future is dropped, the workers are destroyed, unless the request keeps them.
    pub async fn swarm(&self, mut request: SwarmRequest, progress: &Progress) -> Result<SwarmDone, OpError> {
        request.check()?;
        self.refuse_when_closing()?;
        if request.mcp_bridge {
            self.refuse_without_bridge()?;
        }
        let (golden, ..) =
            self.accepted_snapshot(&request.golden, &request.snapshot, Operation::UseSnapshots)?;
        // The id is used because another workspace may have the name by the time the last worker is forked.
        request.golden = WorkspaceRef::Id(golden.id);
        let target = match &request.merge {
            Some(merge) => Some(self.guest(merge.target.as_ref().unwrap_or(&request.golden)).await?),
            None => None,
        };
        let progress = progress.clone();
        self.guarded(|session, stop| async move {
            let _call = session.begin_call();
            session.run_swarm(&request, target, &progress, &stop).await
        })
        .await
    }

    async fn run_swarm(
        &self,
        request: &SwarmRequest,
        target: Option<Guest>,
        progress: &Progress,
        stop: &CancellationToken,
    ) -> Result<SwarmDone, OpError> {
        let begun = Instant::now();
        let swarm_id = swarm_id();
        let forked = ForkedWorkers::default();
        let prefix = request.name_prefix.as_ref().map_or(swarm_id.as_str(), NamePrefix::as_str);
        let crew = Workers { session: self, prefix, request, forked: &forked, common: OnceCell::new() };
        let tasks = stop.run_until_cancelled(run_tasks(&crew, request, progress)).await;
        let mut merged = None;
        if let (Some(tasks), Some(target), Some(merge)) = (&tasks, target, &request.merge) {
            progress.report("merging the successful tasks", None);
            merged = Some(self.merge_workers(merge, target, tasks, stop).await);
        }
        let workers: Vec<_> = forked.all().iter().map(|worker| worker.id).collect();
        let kept = match request.cleanup {
            true if stop.is_cancelled() => Err(OpError::Cancelled),
            true => Ok(()),
            false => self.keep(&workers, stop).await,
        };
        let destroyed = match request.cleanup || kept.is_err() {
            true => self.destroy_all(&forked).await,
            false => 0,
        };
        kept?;
        let tasks = tasks.ok_or(OpError::Cancelled)?;
        match tasks.first().map(|task| &task.outcome) {
            Some(TaskOutcome::Failed { reason }) if workers.is_empty() => {
                Err(SwarmError::NoWorker(reason.clone()).into())
            }
            Some(_) | None => Ok(SwarmDone {
                swarm_id,
                tasks,
                elapsed: begun.elapsed(),
                workers_destroyed: destroyed,
                merge: merged,
            }),
        }
    }

    /// Must be awaited to its end.
    async fn merge_workers(
        &self,
        merge: &SwarmMerge,
        target: Guest,
        tasks: &[TaskDone],
        stop: &CancellationToken,
    ) -> SwarmMerged {
        let id = target.id();
        let result = self.try_merge(merge, target, tasks, stop).await;
        SwarmMerged { strategy: merge.strategy, target: id, result }
    }

    async fn try_merge(
        &self,
        merge: &SwarmMerge,
        target: Guest,
        tasks: &[TaskDone],
        stop: &CancellationToken,
    ) -> Result<Merged, String> {
        let successful = tasks.iter().filter(|task| task.succeeded()).filter_map(|task| task.workspace);
        let sources: Vec<_> = successful.map(WorkspaceRef::Id).collect();
        if sources.is_empty() {
            return Err("no task succeeded, so there is nothing to merge".to_owned());
        }
        let Ok(path) = GuestPath::parse(REPOSITORY) else { unreachable!("{REPOSITORY} is a path") };
        let mut guests = Vec::with_capacity(sources.len());
        for source in &sources {
            guests.push(self.guest(source).await.map_err(|error| error.to_string())?);
        }
        let request = MergeRequest {
            sources,
            target: WorkspaceRef::Id(target.id()),
            path,
            strategy: merge.strategy,
            message: None,
        };
        self.merge_guests(&request, target, guests, stop).await.map_err(|error| error.to_string())
    }

    /// Destroys all workers and returns how many are gone.
    async fn destroy_all(&self, forked: &ForkedWorkers) -> usize {
        let destroyed =
            forked.all().into_iter().map(|worker| async move { self.destroy_unkept(&worker).await });
        join_all(destroyed).await.into_iter().filter(|destroyed| *destroyed).count()
    }
}

/// Runs all tasks, `max_parallel` at a time, and returns the results in the order of the request.
async fn run_tasks(workers: &Workers<'_>, request: &SwarmRequest, progress: &Progress) -> Vec<TaskDone> {
    let total = request.tasks.len();
    let mut running = futures::stream::iter(0..total)
        .map(|index| async move { (index, workers.run(&request.tasks[index]).await) })
        .buffer_unordered(request.max_parallel);
    let mut done = Vec::with_capacity(total);
    while let Some(task) = running.next().await {
        done.push(task);
        let count = done.len();
        progress.report(&format!("{count} of {total} tasks are done"), Some(count as f32 / total as f32));
    }
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, task)| task).collect()
}

/// The start time and a random suffix, which tells swarms of the same second apart.
fn swarm_id() -> String {
    let begun = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    format!("swarm-{begun}-{}", &WorkspaceId::random().short()[..4])
}
