//! What others hold of a runner: its queue, and the machine it has published.

use std::sync::Arc;

use agentiso_core::names::WorkspaceName;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::OpError;
use crate::machines::Machine;
use crate::machines::Progress;

/// Requests that may wait for one workspace. Start, stop and destroy exclude each other, so a longer queue would
/// only hold requests that will be refused.
pub(crate) const QUEUE_LENGTH: usize = 8;

#[derive(Debug)]
pub(crate) enum Request {
    Start(Progress),
    Stop,
    Destroy,
}

#[derive(Debug)]
pub(crate) struct Envelope {
    pub(crate) request: Request,
    pub(crate) reply: oneshot::Sender<Result<(), OpError>>,
}

/// The machine as callers may use it.
#[derive(Clone, Debug)]
pub(crate) enum Live {
    Down,
    /// Its process runs and is being found again.
    Attaching,
    Up(Arc<dyn Machine>),
}

#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) queue: mpsc::Sender<Envelope>,
    pub(crate) live: watch::Receiver<Live>,
}

impl Handle {
    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&self, name: &WorkspaceName, request: Request) -> Result<(), OpError> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(Envelope { request, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => OpError::Busy { name: name.clone() },
            mpsc::error::TrySendError::Closed(_) => gone(name),
        })?;
        // The runner answers everything it takes; it drops what is left when its workspace is gone.
        answer.await.unwrap_or_else(|_| Err(gone(name)))
    }
}

fn gone(name: &WorkspaceName) -> OpError {
    OpError::NotFound { wanted: name.to_string(), nearest: None, known: Vec::new() }
}
