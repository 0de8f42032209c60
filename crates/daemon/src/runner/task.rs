//! The loop of one workspace: it handles the end of its VM and the requests of others, one at a time.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::WorkspaceName;
use futures::StreamExt;
use futures::stream::Peekable;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::create::{self, Delivery, Seed};
use super::recover::Recovery;
use super::snapshots::Volume;
use crate::error::OpError;
use crate::handle::{Answer, Envelope, Handle, Live, QUEUE_LENGTH, Reply, Request};
use crate::info::VmIdentity;
use crate::registry::{Lifetime, Listing, Status, Workspace};
use crate::shared::Shared;
use crate::standstill::ROOM_CHECK_INTERVAL;
use crate::vms::Progress;
use crate::vms::{Vm, VmSpec};

/// The idle time before the volume is tidied: series of snapshots and other use of the host come first.
const IDLE_BEFORE_TIDY: Duration = Duration::from_secs(2);

/// The requests that were accepted and are pending.
pub(super) type Queue = Peekable<ReceiverStream<Envelope>>;

pub(super) struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) id: WorkspaceId,
    pub(super) name: WorkspaceName,
    pub(super) spec: VmSpec,
    /// Published for callers; `Up` exactly while the VM is known to run.
    pub(super) live: watch::Sender<Live>,
    pub(super) volume: Volume,
    layers: Layers,
    pub(super) queue: Queue,
}

/// Whether the layers of the volume may be tidied when there is nothing else to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layers {
    Tidy,
    Untidy,
}

/// Resolves when a request is pending, and leaves it in the queue.
pub(super) async fn pending(queue: &mut Queue) {
    Pin::new(queue).peek().await;
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
        // Any work of the last daemon on the volume was interrupted.
        runner.volume = Volume::Unsettled(listing);
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
            volume: Volume::Settled,
            layers: Layers::Tidy,
            queue: ReceiverStream::new(requests).peekable(),
        }
    }

    pub(super) fn vm(&self) -> Option<Arc<dyn Vm>> {
        self.live.borrow().vm()
    }

    async fn run(mut self) {
        loop {
            let live = self.live.borrow().clone();
            let vm = live.vm();
            let suspended = self.is_suspended();
            let retry = async {
                match live {
                    Live::OutOfReach { pause, .. } => tokio::time::sleep(pause).await,
                    Live::Down | Live::Attaching | Live::Up(_) => std::future::pending().await,
                }
            };
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
                envelope = self.queue.next() => {
                    let Some(envelope) = envelope else { return };
                    if self.handle(envelope).await == Existence::Gone {
                        return;
                    }
                }
                () = ended.ended.cancelled() => return,
                () = tokio::time::sleep(ROOM_CHECK_INTERVAL), if suspended => self.try_to_resume().await,
                () = retry => self.try_to_reach().await,
                () = tokio::time::sleep(IDLE_BEFORE_TIDY), if self.layers == Layers::Untidy && !suspended => {
                    self.tidy().await;
                }
            }
        }
    }

    /// Shortens the layers of a volume whose owner takes many snapshots in a row.
    async fn shorten(&mut self) {
        let Some(vm) = self.vm() else { return };
        if let Err(failure) = vm.shorten().await {
            tracing::warn!(workspace = %self.name, %failure, "cannot shorten its chain of layers");
            self.unsettle();
        }
    }

    /// Tidies the volume until a request comes.
    async fn tidy(&mut self) {
        self.layers = Layers::Tidy;
        // The volume of a stopped workspace was put in order by the step that stopped it.
        let Some(vm) = self.vm() else { return };
        let interrupted = CancellationToken::new();
        let mut work = vm.tidy(&interrupted);
        let tidied = tokio::select! {
            biased;
            tidied = &mut work => tidied,
            () = pending(&mut self.queue) => {
                self.layers = Layers::Untidy;
                interrupted.cancel();
                work.await
            }
        };
        if let Err(failure) = tidied {
            tracing::warn!(workspace = %self.name, %failure, "cannot tidy its layers");
            self.unsettle();
        }
    }

    async fn handle(&mut self, Envelope { request, mut reply }: Envelope) -> Existence {
        let Some(workspace) = self.shared.workspace(&self.id) else { return Existence::Gone };
        // Conditions that held when the request was sent may no longer hold.
        let answer = match workspace.admit(request.operation(workspace.lifetime)) {
            Ok(()) => self.carry_out(request, workspace.lifetime, &mut reply).await,
            Err(refusal) => Err(refusal),
        };
        let is_taken = matches!(answer, Ok(Answer::Taken(_)));
        let existence = match answer {
            Ok(Answer::Destroyed) => Existence::Gone,
            Ok(_) | Err(_) => Existence::Exists,
        };
        if reply.send(answer).is_err() {
            tracing::debug!(workspace = %self.name, "the request was answered, but its client is gone");
        }
        if is_taken {
            self.shorten().await;
        }
        existence
    }

    async fn carry_out(
        &mut self,
        request: Request,
        lifetime: Lifetime,
        reply: &mut Reply,
    ) -> Result<Answer, OpError> {
        match (request, lifetime) {
            (Request::Start { progress }, _) => self.start(progress).await.map(|()| Answer::Done),
            (Request::Stop, _) | (Request::End, Lifetime::Lasting) => {
                self.stop().await.map(|()| Answer::Done)
            }
            (Request::Destroy, _) | (Request::End, Lifetime::OneCall) => {
                self.destroy().await.map(|()| Answer::Destroyed)
            }
            (Request::Snapshot { name, include_memory, progress }, _) => {
                self.layers = Layers::Untidy;
                self.snapshot(name, include_memory, progress).await.map(Answer::Taken)
            }
            (Request::Restore { snapshot, progress }, _) => {
                self.restore(snapshot, progress).await.map(Answer::Restored)
            }
            (Request::DeleteSnapshot { snapshot }, _) => {
                self.layers = Layers::Untidy;
                self.delete_snapshot(snapshot).await.map(|()| Answer::Done)
            }
            (Request::Diff { snapshot }, _) => {
                let cancelled = CancellationToken::new();
                let mut comparing = pin!(self.diff(snapshot, &cancelled));
                let compared = tokio::select! {
                    biased;
                    compared = &mut comparing => compared,
                    // The caller is gone, and others may wait for this workspace.
                    () = reply.closed() => {
                        cancelled.cancel();
                        comparing.await
                    }
                };
                compared.map(Answer::Compared)
            }
            (Request::Branch { snapshot, fork }, _) => {
                self.branch(snapshot, &fork).await.map(|()| Answer::Done)
            }
        }
    }

    async fn died(&mut self, reason: String) {
        tracing::warn!(workspace = %self.name, %reason, "its VM ended by itself");
        self.live.send_replace(Live::Down);
        self.shared.network.vacate(&self.id).await;
        self.shared.set_status(&self.id, Status::Stopped { reason: Some(reason) });
        self.shared.save_or_warn("a VM ended").await;
    }
}
