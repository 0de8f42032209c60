//! The loop of one workspace: its machine's end and the requests of others, one at a time.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceName;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::birth::{self, Delivery, Seed};
use super::handle::{Handle, Live, QUEUE_LENGTH, Reply, Request};
use super::reach::OutOfReach;
use super::recover::Recovery;
use super::suspend::LOOK_AGAIN;
use crate::error::OpError;
use crate::machines::Progress;
use crate::machines::{ExitReason, Machine, MachineSpec};
use crate::registry::{Books, Lifetime, Place, Registry, Status, Workspace};
use crate::shared::Shared;

/// Whoever takes snapshots in a row, or uses the host otherwise, comes first.
const LEFT_ALONE: Duration = Duration::from_secs(2);

pub(super) struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) id: WorkspaceId,
    pub(super) name: WorkspaceName,
    pub(super) spec: MachineSpec,
    /// Published for callers; `Up` exactly while the machine is known to run.
    pub(super) live: watch::Sender<Live>,
    /// Whether the volume may hold what the ledger does not; it is put in order before the next step on it.
    pub(super) unsettled: bool,
    /// Whether what the ledger says of its snapshots is all there is.
    pub(super) books: Books,
    /// Whether its layers may be put in better order when there is nothing else to do.
    pub(super) untidy: bool,
    /// Its machine, while that runs and cannot be reached.
    pub(super) out_of_reach: Option<OutOfReach>,
    pub(super) waiting: Option<Request>,
    pub(super) queue: mpsc::Receiver<Request>,
}

/// Whether the workspace still exists after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    Exists,
    Gone,
}

/// Starts the task of a workspace that was just reserved. It is rolled back when `cancel` comes before its
/// delivery was accepted.
pub(crate) fn spawn_create(
    shared: &Arc<Shared>,
    workspace: &Workspace,
    seed: Seed,
    progress: Progress,
    cancel: CancellationToken,
    deliver: oneshot::Sender<Result<Delivery, OpError>>,
) {
    let runner = Runner::enrol(shared, workspace, Live::Down);
    shared.tasks.spawn(async move {
        let mut runner = runner;
        if birth::create(&mut runner, seed, progress, cancel, deliver).await == Existence::Exists {
            runner.run().await;
        }
    });
}

/// Starts the task of a workspace that the ledger knows, or that comes back from the quarantine.
pub(super) fn spawn_recovered(shared: &Arc<Shared>, workspace: &Workspace, recovery: Recovery, books: Books) {
    let live = if matches!(recovery, Recovery::Attach(_)) { Live::Attaching } else { Live::Down };
    let runner = Runner::enrol(shared, workspace, live);
    shared.tasks.spawn(async move {
        let mut runner = runner;
        runner.books = books;
        if runner.recover(recovery).await == Existence::Exists {
            runner.run().await;
        }
    });
}

/// A workspace without a network is still one: what is wrong is shown with it, and tried again at its next start.
pub(super) fn take_seat(shared: &Shared, workspace: &Workspace) {
    let place = Place { id: workspace.id, address: workspace.address };
    if let Err(error) = shared.network.seat(place, &workspace.name.hostname(), &workspace.network) {
        tracing::error!(workspace = %workspace.name, %error, "it has no network");
    }
    let groups = shared.state();
    shared.network.set_groups(&workspace.id, groups.registry.teams.groups_of(&workspace.id));
}

impl Runner {
    fn enrol(shared: &Arc<Shared>, workspace: &Workspace, live: Live) -> Self {
        let (queue, requests) = mpsc::channel(QUEUE_LENGTH);
        let (live, published) = watch::channel(live);
        shared.state().runners.insert(workspace.id, Handle { queue, live: published });
        take_seat(shared, workspace);
        Self {
            shared: Arc::clone(shared),
            id: workspace.id,
            name: workspace.name.clone(),
            spec: shared.spec(workspace),
            live,
            unsettled: false,
            books: Books::Complete,
            untidy: false,
            out_of_reach: None,
            waiting: None,
            queue: requests,
        }
    }

    pub(super) fn machine(&self) -> Option<Arc<dyn Machine>> {
        match &*self.live.borrow() {
            Live::Up(machine) => Some(Arc::clone(machine)),
            Live::Down | Live::Attaching => None,
        }
    }

    async fn run(mut self) {
        loop {
            let machine = self.machine();
            let suspended = self.is_suspended();
            let pause = self.out_of_reach.as_ref().map_or(Duration::MAX, |machine| machine.pause);
            let exited = async {
                match &machine {
                    Some(machine) => machine.exited().await,
                    None => std::future::pending().await,
                }
            };
            let stalled = async {
                match &machine {
                    Some(machine) if !suspended => machine.stalled().await,
                    Some(_) | None => std::future::pending().await,
                }
            };
            let ended = Arc::clone(&self.shared);
            tokio::select! {
                // The end of the machine comes first, so that a request queued behind it meets the stopped
                // workspace it really is; the end of the daemon last, when there is nothing left to do.
                biased;
                reason = exited => self.died(reason).await,
                reason = stalled => self.suspend(reason).await,
                request = self.next() => {
                    let Some(request) = request else { return };
                    if self.handle(request).await == Existence::Gone {
                        return;
                    }
                }
                () = ended.ended.cancelled() => return,
                () = tokio::time::sleep(LOOK_AGAIN), if suspended => self.try_to_go_on().await,
                () = tokio::time::sleep(pause), if self.out_of_reach.is_some() => self.try_to_reach().await,
                () = tokio::time::sleep(LEFT_ALONE), if self.untidy && !suspended => self.tidy().await,
            }
        }
    }

    /// The request that came while the volume was put in order, or the next one.
    async fn next(&mut self) -> Option<Request> {
        match self.waiting.take() {
            Some(request) => Some(request),
            None => self.queue.recv().await,
        }
    }

    /// Keeps a volume in order whose owner takes snapshots in a row.
    async fn shorten(&mut self) {
        let Some(machine) = self.machine() else { return };
        if let Err(failure) = machine.shorten().await {
            tracing::warn!(workspace = %self.name, %failure, "its layers were not made fewer");
            self.unsettled = true;
        }
    }

    /// Puts the volume in better order, until a request comes.
    async fn tidy(&mut self) {
        self.untidy = false;
        // A volume at rest was put in order by the step that left it so.
        let Some(machine) = self.machine() else { return };
        let interrupted = CancellationToken::new();
        let mut work = machine.tidy(&interrupted);
        let tidied = tokio::select! {
            biased;
            tidied = &mut work => tidied,
            request = self.queue.recv() => {
                self.waiting = request;
                self.untidy = true;
                interrupted.cancel();
                work.await
            }
        };
        if let Err(failure) = tidied {
            tracing::warn!(workspace = %self.name, %failure, "its layers were not put in order");
            self.unsettled = true;
        }
    }

    async fn handle(&mut self, request: Request) -> Existence {
        // What was true when the request was sent may not be true when it is opened.
        let (lifetime, admitted) = match self.shared.state().registry.get(&self.id) {
            Some(workspace) => {
                let lifetime = workspace.lifetime;
                (lifetime, Registry::admit(workspace, request.operation(lifetime)))
            }
            None => return Existence::Gone,
        };
        if let Err(refusal) = admitted {
            request.refuse(refusal);
            return Existence::Exists;
        }
        match request {
            Request::Start { progress, reply } => {
                let started = self.start(progress).await;
                self.answer(reply, started);
            }
            Request::Stop { reply } => self.stop_for(reply).await,
            Request::Destroy { reply } => return self.destroy_for(reply).await,
            Request::End { reply } => match lifetime {
                // Nobody asked for its end, and its guest cannot be told: the next daemon may reach it.
                Lifetime::Lasting if self.out_of_reach.is_some() => {
                    self.answer(reply, Err(self.not_at_hand()));
                }
                Lifetime::Lasting => self.stop_for(reply).await,
                Lifetime::OneCall => return self.destroy_for(reply).await,
            },
            Request::Snapshot { name, include_memory, progress, reply } => {
                self.untidy = true;
                let taken = self.snapshot(name, include_memory, progress).await;
                let is_taken = taken.is_ok();
                self.answer(reply, taken);
                if is_taken {
                    self.shorten().await;
                }
            }
            Request::Restore { snapshot, progress, reply } => {
                let back = self.restore(snapshot, progress).await;
                self.answer(reply, back);
            }
            Request::DeleteSnapshot { snapshot, reply } => {
                self.untidy = true;
                let deleted = self.delete_snapshot(snapshot).await;
                self.answer(reply, deleted);
            }
            Request::Diff { snapshot, mut reply } => {
                let cancelled = CancellationToken::new();
                let compared = {
                    let mut comparing = std::pin::pin!(self.diff(snapshot, &cancelled));
                    tokio::select! {
                        biased;
                        compared = &mut comparing => compared,
                        // Nobody wants to know any more, and others may wait for this workspace.
                        () = reply.closed() => {
                            cancelled.cancel();
                            comparing.await
                        }
                    }
                };
                self.answer(reply, compared);
            }
            Request::Branch { snapshot, fork, reply } => {
                let branched = self.branch(snapshot, &fork).await;
                self.answer(reply, branched);
            }
        }
        Existence::Exists
    }

    async fn stop_for(&mut self, reply: Reply<()>) {
        let stopped = self.stop().await;
        self.answer(reply, stopped);
    }

    async fn destroy_for(&mut self, reply: Reply<()>) -> Existence {
        let destroyed = self.destroy().await;
        let existence = if destroyed.is_ok() { Existence::Gone } else { Existence::Exists };
        self.answer(reply, destroyed);
        existence
    }

    fn answer<T>(&self, reply: Reply<T>, answer: Result<T, OpError>) {
        if reply.send(answer).is_err() {
            tracing::debug!(workspace = %self.name, "whoever asked is gone; the step is done all the same");
        }
    }

    async fn died(&mut self, reason: ExitReason) {
        tracing::warn!(workspace = %self.name, %reason, "the machine ended by itself");
        self.live.send_replace(Live::Down);
        self.shared.network.vacate(&self.id).await;
        self.shared.set_status(&self.id, Status::Stopped { reason: Some(reason.text) });
        self.shared.save_or_warn("a machine ended").await;
    }
}
