//! The right to have a request under way, of which a front gives out only so many.
//!
//! ```text
//!  taken before the body is read ── call ──▶ answered, or its client gone
//!                                └─ line ──▶ written to the server           free when the last of them is over
//! ```
//!
//! A line that the server has not taken yet is memory, whoever still waits for its answer, so it keeps the turn as well.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Cloned, it is the same turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    _permit: Arc<OwnedSemaphorePermit>,
}

#[derive(Debug)]
pub(crate) struct Turns {
    requests: Arc<Semaphore>,
}

impl Turns {
    pub(crate) fn new(requests: usize) -> Self {
        Self { requests: Arc::new(Semaphore::new(requests)) }
    }

    /// `None`: as many are under way as there may be.
    pub(crate) fn take(&self) -> Option<Turn> {
        let permit = self.requests.clone().try_acquire_owned().ok()?;
        Some(Turn { _permit: Arc::new(permit) })
    }
}
