//! The loop of one workspace: its machine's end and the requests of others, one at a time.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::lifecycle::Operation;
use agentiso_core::names::WorkspaceName;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::birth::{self, Delivery};
use super::handle::{Envelope, Handle, Live, QUEUE_LENGTH, Request};
use super::recover::Recovery;
use crate::error::OpError;
use crate::machines::Progress;
use crate::machines::{ExitReason, Machine, MachineSpec};
use crate::registry::{Registry, Status, Workspace};
use crate::shared::Shared;

pub(super) struct Runner {
    pub(super) shared: Arc<Shared>,
    pub(super) id: WorkspaceId,
    pub(super) name: WorkspaceName,
    pub(super) spec: MachineSpec,
    /// Published for callers; `Up` exactly while the machine is known to run.
    pub(super) live: watch::Sender<Live>,
    queue: mpsc::Receiver<Envelope>,
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
    progress: Progress,
    cancel: CancellationToken,
    deliver: oneshot::Sender<Result<Delivery, OpError>>,
) {
    let runner = Runner::enrol(shared, workspace, Live::Down);
    shared.tasks.spawn(async move {
        let mut runner = runner;
        if birth::create(&mut runner, progress, cancel, deliver).await == Existence::Exists {
            runner.run().await;
        }
    });
}

/// Starts the task of a workspace that the ledger knows.
pub(crate) fn spawn_recovered(shared: &Arc<Shared>, workspace: &Workspace, recovery: Recovery) {
    let live = if matches!(recovery, Recovery::Attach(_)) { Live::Attaching } else { Live::Down };
    let runner = Runner::enrol(shared, workspace, live);
    shared.tasks.spawn(async move {
        let mut runner = runner;
        if runner.recover(recovery).await == Existence::Exists {
            runner.run().await;
        }
    });
}

impl Runner {
    fn enrol(shared: &Arc<Shared>, workspace: &Workspace, live: Live) -> Self {
        let (queue, requests) = mpsc::channel(QUEUE_LENGTH);
        let (live, published) = watch::channel(live);
        shared.state().runners.insert(workspace.id, Handle { queue, live: published });
        Self {
            shared: Arc::clone(shared),
            id: workspace.id,
            name: workspace.name.clone(),
            spec: shared.spec(workspace),
            live,
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
            let exited = async {
                match machine {
                    Some(machine) => machine.exited().await,
                    None => std::future::pending().await,
                }
            };
            let ended = Arc::clone(&self.shared);
            tokio::select! {
                // The end of the machine comes first, so that a request queued behind it meets the stopped
                // workspace it really is; the end of the daemon last, when there is nothing left to do.
                biased;
                reason = exited => self.died(reason).await,
                envelope = self.queue.recv() => {
                    let Some(envelope) = envelope else { return };
                    if self.handle(envelope).await == Existence::Gone {
                        return;
                    }
                }
                () = ended.ended.cancelled() => return,
            }
        }
    }

    async fn handle(&mut self, Envelope { request, reply }: Envelope) -> Existence {
        let operation = match &request {
            Request::Start(_) => Operation::Start,
            Request::Stop => Operation::Stop,
            Request::Destroy => Operation::Destroy,
        };
        // What was true when the envelope was sent may not be true when it is opened.
        let admitted = match self.shared.state().registry.get(&self.id) {
            Some(workspace) => Registry::admit(workspace, operation),
            None => return Existence::Gone,
        };
        let (existence, answer) = match (admitted, request) {
            (Err(refused), _) => (Existence::Exists, Err(refused)),
            (Ok(()), Request::Start(progress)) => (Existence::Exists, self.start(progress).await),
            (Ok(()), Request::Stop) => (Existence::Exists, self.stop().await),
            (Ok(()), Request::Destroy) => match self.destroy().await {
                Ok(()) => (Existence::Gone, Ok(())),
                Err(error) => (Existence::Exists, Err(error)),
            },
        };
        if reply.send(answer).is_err() {
            tracing::debug!(workspace = %self.name, "whoever asked is gone; the step is done all the same");
        }
        existence
    }

    async fn died(&mut self, reason: ExitReason) {
        tracing::warn!(workspace = %self.name, %reason, "the machine ended by itself");
        self.live.send_replace(Live::Down);
        self.shared.set_status(&self.id, Status::Stopped { reason: Some(reason.text) });
        self.shared.save_or_warn("a machine ended").await;
    }
}
