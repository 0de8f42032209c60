//! The loop of one workspace: it handles the end of its VM and the requests of others, one at a time.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceName;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::create::{self, Delivery, Seed};
use super::reach::OutOfReach;
use super::recover::Recovery;
use crate::error::OpError;
use crate::handle::{Handle, Live, QUEUE_LENGTH, Reply, Request};
use crate::info::VmIdentity;
use crate::registry::{Lifetime, Listing, Status, Workspace};
use crate::shared::Shared;
use crate::standstill::ROOM_CHECK_INTERVAL;
use crate::vms::Progress;
use crate::vms::{ExitReason, Vm, VmSpec};

/// The idle time before the volume is tidied: series of snapshots and other use of the host come first.
const IDLE_BEFORE_TIDY: Duration = Duration::from_secs(2);

pub(super) struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) id: WorkspaceId,
    pub(super) name: WorkspaceName,
    pub(super) spec: VmSpec,
    /// Published for callers; `Up` exactly while the VM is known to run.
    pub(super) live: watch::Sender<Live>,
    /// Whether the volume may differ from the ledger; it is settled before the next step on it.
    pub(super) unsettled: bool,
    /// Whether the ledger's list of its snapshots is complete.
    pub(super) listing: Listing,
    /// Whether its layers may be tidied when there is nothing else to do.
    pub(super) untidy: bool,
    /// Its VM, while that runs and cannot be reached.
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

/// Starts the task of a workspace that was just reserved. It is rolled back if `cancel` fires before its delivery
/// is accepted.
pub(crate) fn spawn_create(
    shared: &Arc<Shared>,
    workspace: &Workspace,
    seed: Seed,
    progress: Progress,
    cancel: CancellationToken,
    deliver: oneshot::Sender<Result<Delivery, OpError>>,
) {
    let runner = Runner::register(shared, workspace, Live::Down);
    shared.tasks.spawn(async move {
        let mut runner = runner;
        if create::create(&mut runner, seed, progress, cancel, deliver).await == Existence::Exists {
            runner.run().await;
        }
    });
}

/// Starts the task of a workspace that the ledger lists, or that is recovered from the quarantine.
pub(super) fn spawn_recovered(
    shared: &Arc<Shared>,
    workspace: &Workspace,
    recovery: Recovery,
    listing: Listing,
) {
    let live = if matches!(recovery, Recovery::Attach(_)) { Live::Attaching } else { Live::Down };
    let runner = Runner::register(shared, workspace, live);
    shared.tasks.spawn(async move {
        let mut runner = runner;
        runner.listing = listing;
        if runner.recover(recovery).await == Existence::Exists {
            runner.run().await;
        }
    });
}

/// A workspace without a network still works: the problem is shown with it, and retried at its next start.
pub(super) fn attach_network(shared: &Shared, workspace: &Workspace) {
    let identity = VmIdentity { id: workspace.id, address: workspace.address };
    if let Err(error) = shared.network.attach(identity, &workspace.name.hostname(), &workspace.network) {
        tracing::error!(workspace = %workspace.name, %error, "cannot set up its network");
    }
    let groups = shared.state();
    shared.network.set_groups(&workspace.id, groups.registry.teams.groups_of(&workspace.id));
}

impl Runner {
    fn register(shared: &Arc<Shared>, workspace: &Workspace, live: Live) -> Self {
        let (queue, requests) = mpsc::channel(QUEUE_LENGTH);
        let (live, published) = watch::channel(live);
        shared.state().runners.insert(workspace.id, Handle { queue, live: published });
        attach_network(shared, workspace);
        Self {
            shared: Arc::clone(shared),
            id: workspace.id,
            name: workspace.name.clone(),
            spec: shared.spec(workspace),
            live,
            unsettled: false,
            listing: Listing::Complete,
            untidy: false,
            out_of_reach: None,
            waiting: None,
            queue: requests,
        }
    }

    pub(super) fn vm(&self) -> Option<Arc<dyn Vm>> {
        match &*self.live.borrow() {
            Live::Up(vm) => Some(Arc::clone(vm)),
            Live::Down | Live::Attaching => None,
        }
    }

    async fn run(mut self) {
        loop {
            let vm = self.vm();
            let suspended = self.is_suspended();
            let pause = self.out_of_reach.as_ref().map_or(Duration::MAX, |vm| vm.pause);
            let exited = async {
                match &vm {
                    Some(vm) => vm.exited().await,
                    None => std::future::pending().await,
                }
            };
            let stalled = async {
                match &vm {
                    Some(vm) if !suspended => vm.stalled().await,
                    Some(_) | None => std::future::pending().await,
                }
            };
            let ended = Arc::clone(&self.shared);
            tokio::select! {
                // The end of the VM comes first, so that a request queued behind it meets the stopped workspace;
                // the end of the daemon comes last, when there is nothing left to do.
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
                () = tokio::time::sleep(ROOM_CHECK_INTERVAL), if suspended => self.try_to_resume().await,
                () = tokio::time::sleep(pause), if self.out_of_reach.is_some() => self.try_to_reach().await,
                () = tokio::time::sleep(IDLE_BEFORE_TIDY), if self.untidy && !suspended => self.tidy().await,
            }
        }
    }

    /// The request that interrupted the tidying, or the next one.
    async fn next(&mut self) -> Option<Request> {
        match self.waiting.take() {
            Some(request) => Some(request),
            None => self.queue.recv().await,
        }
    }

    /// Shortens the layers of a volume whose owner takes many snapshots in a row.
    async fn shorten(&mut self) {
        let Some(vm) = self.vm() else { return };
        if let Err(failure) = vm.shorten().await {
            tracing::warn!(workspace = %self.name, %failure, "cannot shorten its chain of layers");
            self.unsettled = true;
        }
    }

    /// Tidies the volume until a request comes.
    async fn tidy(&mut self) {
        self.untidy = false;
        // The volume of a stopped workspace was put in order by the step that stopped it.
        let Some(vm) = self.vm() else { return };
        let interrupted = CancellationToken::new();
        let mut work = vm.tidy(&interrupted);
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
            tracing::warn!(workspace = %self.name, %failure, "cannot tidy its layers");
            self.unsettled = true;
        }
    }

    async fn handle(&mut self, request: Request) -> Existence {
        // Conditions that held when the request was sent may no longer hold.
        let (lifetime, admitted) = match self.shared.state().registry.get(&self.id) {
            Some(workspace) => {
                let lifetime = workspace.lifetime;
                (lifetime, workspace.admit(request.operation(lifetime)))
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
                let outcome = self.restore(snapshot, progress).await;
                self.answer(reply, outcome);
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
                        // The caller is gone, and others may wait for this workspace.
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
            tracing::debug!(workspace = %self.name, "the request was completed, but its client is gone");
        }
    }

    async fn died(&mut self, reason: ExitReason) {
        tracing::warn!(workspace = %self.name, %reason, "its VM ended by itself");
        self.live.send_replace(Live::Down);
        self.shared.network.vacate(&self.id).await;
        self.shared.set_status(&self.id, Status::Stopped { reason: Some(reason.text) });
        self.shared.save_or_warn("a VM ended").await;
    }
}
