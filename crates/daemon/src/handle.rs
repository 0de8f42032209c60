//! The handle of a runner that others hold: its queue, and the VM it has published.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_core::lifecycle::Operation;
use agentiso_core::names::{SnapshotName, WorkspaceName};
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::OpError;
use crate::registry::Lifetime;
use crate::vms::{Progress, Rung, SnapshotDiff, Vm, VmSpec};

/// Requests that may wait for one workspace. Most exclude each other, so a longer queue would only hold requests
/// that will be refused.
pub(crate) const QUEUE_LENGTH: usize = 8;

/// The channel for the answer to a request.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, OpError>>;

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

#[derive(Debug)]
pub(crate) enum Request {
    Start {
        progress: Progress,
        reply: Reply<()>,
    },
    Stop {
        reply: Reply<()>,
    },
    Destroy {
        reply: Reply<()>,
    },
    /// Sent when the daemon ends. A lasting workspace is stopped; a one-call workspace is destroyed, unless its
    /// call made it lasting while this request waited.
    End {
        reply: Reply<()>,
    },
    Snapshot {
        name: SnapshotName,
        include_memory: bool,
        progress: Progress,
        reply: Reply<Taken>,
    },
    Restore {
        snapshot: SnapshotId,
        progress: Progress,
        reply: Reply<RestoreOutcome>,
    },
    DeleteSnapshot {
        snapshot: SnapshotId,
        reply: Reply<()>,
    },
    Diff {
        snapshot: SnapshotId,
        reply: Reply<SnapshotDiff>,
    },
    /// Gives another workspace the disk of one of its snapshots.
    Branch {
        snapshot: SnapshotId,
        fork: Box<VmSpec>,
        reply: Reply<()>,
    },
}

impl Request {
    /// The operation that the workspace must admit, given its lifetime.
    pub(crate) fn operation(&self, lifetime: Lifetime) -> Operation {
        match self {
            Self::Start { .. } => Operation::Start,
            Self::Stop { .. } => Operation::Stop,
            Self::Destroy { .. } => Operation::Destroy,
            Self::End { .. } => match lifetime {
                Lifetime::Lasting => Operation::End,
                Lifetime::OneCall => Operation::Destroy,
            },
            Self::Snapshot { .. } => Operation::Snapshot,
            Self::Restore { .. } => Operation::Restore,
            Self::DeleteSnapshot { .. } | Self::Diff { .. } | Self::Branch { .. } => Operation::UseSnapshots,
        }
    }

    /// Answers with an error and does nothing.
    pub(crate) fn refuse(self, error: OpError) {
        let heard = match self {
            Self::Start { reply, .. }
            | Self::Stop { reply }
            | Self::Destroy { reply }
            | Self::End { reply }
            | Self::DeleteSnapshot { reply, .. }
            | Self::Branch { reply, .. } => reply.send(Err(error)).is_ok(),
            Self::Snapshot { reply, .. } => reply.send(Err(error)).is_ok(),
            Self::Restore { reply, .. } => reply.send(Err(error)).is_ok(),
            Self::Diff { reply, .. } => reply.send(Err(error)).is_ok(),
        };
        if !heard {
            tracing::debug!("a request was refused, but its client is gone");
        }
    }
}

/// The VM as callers may use it.
#[derive(Clone, Debug)]
pub(crate) enum Live {
    Down,
    /// Its process runs and is being reattached.
    Attaching,
    Up(Arc<dyn Vm>),
}

#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) queue: mpsc::Sender<Request>,
    pub(crate) live: watch::Receiver<Live>,
}

impl Handle {
    /// Sends a request and waits for its answer. A full queue is a refusal.
    pub(crate) async fn ask<T>(
        &self,
        name: &WorkspaceName,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, OpError> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(request(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => OpError::Busy { name: name.clone() },
            mpsc::error::TrySendError::Closed(_) => gone(name),
        })?;
        // The runner answers everything it takes; it drops the rest when its workspace is gone.
        answer.await.unwrap_or_else(|_| Err(gone(name)))
    }

    /// The same, but waits for room in the queue: for requests whose number is bounded elsewhere.
    pub(crate) async fn ask_in_turn<T>(
        &self,
        name: &WorkspaceName,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, OpError> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(request(reply)).await.map_err(|_| gone(name))?;
        answer.await.unwrap_or_else(|_| Err(gone(name)))
    }
}

fn gone(name: &WorkspaceName) -> OpError {
    OpError::NotFound { wanted: name.to_string(), nearest: None, known: Vec::new() }
}
