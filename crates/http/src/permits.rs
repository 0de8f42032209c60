//! Permits to have a request in progress, of which a front gives out a limited number.
//!
//! ```text
//!  taken before the body is read ── call ──▶ answered, or its client gone
//!                                └─ line ──▶ written to the server           free when both are over
//! ```
//!
//! A line that the server has not read yet takes memory, even if no client waits for its answer any more, so it holds
//! the permit as well. A few spare permits exist for messages that need no answer: a cancellation must get through
//! exactly when all other permits are taken.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::settings::SPARE_PERMITS;

/// A clone is the same permit.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    _permit: Arc<OwnedSemaphorePermit>,
    is_spare: bool,
}

impl Permit {
    /// Whether it is for a small message that is not a request.
    pub(crate) fn is_spare(&self) -> bool {
        self.is_spare
    }
}

#[derive(Debug)]
pub(crate) struct Permits {
    requests: Arc<Semaphore>,
    spare: Arc<Semaphore>,
}

impl Permits {
    pub(crate) fn new(requests: usize) -> Self {
        Self { requests: Arc::new(Semaphore::new(requests)), spare: Arc::new(Semaphore::new(SPARE_PERMITS)) }
    }

    /// `None` if the maximum number of requests is in progress.
    pub(crate) fn take(&self) -> Option<Permit> {
        take(&self.requests, false)
    }

    pub(crate) fn take_spare(&self) -> Option<Permit> {
        take(&self.spare, true)
    }
}

fn take(permits: &Arc<Semaphore>, is_spare: bool) -> Option<Permit> {
    let permit = permits.clone().try_acquire_owned().ok()?;
    Some(Permit { _permit: Arc::new(permit), is_spare })
}
