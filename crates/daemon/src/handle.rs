//! The handle of a runner that others hold: its queue, and the VM it has published.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_core::lifecycle::Operation;
use agentiso_core::names::{SnapshotName, WorkspaceName};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::OpError;
use crate::registry::Lifetime;
use crate::vms::{Progress, Rung, SnapshotDiff, Vm, VmRecord, VmSpec};

/// Requests that may wait for one workspace. Most exclude each other, so a longer queue would only hold requests
/// that will be refused.
pub(crate) const QUEUE_LENGTH: usize = 8;

/// The channel for the answer to a request.
pub(crate) type Reply = oneshot::Sender<Result<Answer, OpError>>;

/// A request on its way to a runner, and the way back.
#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) request: Request,
    pub(crate) reply: Reply,
}

#[derive(Debug)]
pub(crate) enum Request {
    Start {
        progress: Progress,
    },
    Stop,
    Destroy,
    /// Sent when the daemon ends. A lasting workspace is stopped; a one-call workspace is destroyed, unless its
    /// call made it lasting while this request waited.
    End,
    Snapshot {
        name: SnapshotName,
        include_memory: bool,
        progress: Progress,
    },
    Restore {
        snapshot: SnapshotId,
        progress: Progress,
    },
    DeleteSnapshot {
        snapshot: SnapshotId,
    },
    Diff {
        snapshot: SnapshotId,
    },
    /// Gives another workspace the disk of one of its snapshots.
    Branch {
        snapshot: SnapshotId,
        fork: Box<VmSpec>,
    },
}

/// The answer to a request that was carried out.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    /// The workspace is gone.
    Destroyed,
    Taken(Taken),
    Restored(RestoreOutcome),
    Compared(SnapshotDiff),
}

/// A snapshot that was taken and is in the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) id: SnapshotId,
    pub(crate) pause: Duration,
}

/// The result of a restore.
#[derive(Clone, Debug)]
pub(crate) struct RestoreOutcome {
    pub(crate) rung: Rung,
    pub(crate) warning: Option<String>,
}

impl Request {
    /// The operation that the workspace must admit, given its lifetime.
    pub(crate) fn operation(&self, lifetime: Lifetime) -> Operation {
        match self {
            Self::Start { .. } => Operation::Start,
            Self::Stop => Operation::Stop,
            Self::Destroy => Operation::Destroy,
            Self::End => match lifetime {
                Lifetime::Lasting => Operation::End,
                Lifetime::OneCall => Operation::Destroy,
            },
            Self::Snapshot { .. } => Operation::Snapshot,
            Self::Restore { .. } => Operation::Restore,
            Self::DeleteSnapshot { .. } | Self::Diff { .. } | Self::Branch { .. } => Operation::UseSnapshots,
        }
    }
}

/// The VM as callers may use it.
#[derive(Clone, Debug)]
pub(crate) enum Live {
    Down,
    /// Its process runs and is being reattached.
    Attaching,
    /// Its process runs and could not be reattached. The runner tries again after the pause.
    OutOfReach {
        record: VmRecord,
        pause: Duration,
    },
    Up(Arc<dyn Vm>),
}

impl Live {
    pub(crate) fn vm(&self) -> Option<Arc<dyn Vm>> {
        match self {
            Self::Up(vm) => Some(Arc::clone(vm)),
            Self::Down | Self::Attaching | Self::OutOfReach { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) queue: mpsc::Sender<Envelope>,
    pub(crate) live: watch::Receiver<Live>,
}

impl Handle {
    /// Sends a request and waits for its answer. A full queue is a refusal.
    pub(crate) async fn ask(&self, name: &WorkspaceName, request: Request) -> Result<Answer, OpError> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Envelope { request, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => OpError::Busy { name: name.clone() },
            mpsc::error::TrySendError::Closed(_) => gone(name),
        })?;
        // The runner answers everything it takes; it drops the rest when its workspace is gone.
        answer.await.unwrap_or_else(|_| Err(gone(name)))
    }

    /// The same, but waits for room in the queue: for requests whose number is bounded elsewhere.
    pub(crate) async fn ask_in_turn(
        &self,
        name: &WorkspaceName,
        request: Request,
    ) -> Result<Answer, OpError> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(Envelope { request, reply }).await.map_err(|_| gone(name))?;
        answer.await.unwrap_or_else(|_| Err(gone(name)))
    }
}

fn gone(name: &WorkspaceName) -> OpError {
    OpError::NotFound { wanted: name.to_string(), nearest: None, known: Vec::new() }
}
