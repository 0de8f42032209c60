//! The right to have a request under way, of which a front gives out only so many.
//!
//! ```text
//!  taken before the body is read ── call ──▶ answered, or its client gone
//!                                └─ line ──▶ written to the server           free when the last of them is over
//! ```
//!
//! A line that the server has not taken yet is memory, whoever still waits for its answer, so it keeps the turn as well.
//! When all turns are taken there are a few spare ones for what needs no answer: the word that cancels a call must come
//! through just then.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::settings::SPARE_TURNS;

/// Cloned, it is the same turn.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    _permit: Arc<OwnedSemaphorePermit>,
    is_spare: bool,
}

impl Turn {
    /// Whether it is for a small message that is no request.
    pub(crate) fn is_spare(&self) -> bool {
        self.is_spare
    }
}

#[derive(Debug)]
pub(crate) struct Turns {
    requests: Arc<Semaphore>,
    spare: Arc<Semaphore>,
}

impl Turns {
    pub(crate) fn new(requests: usize) -> Self {
        Self { requests: Arc::new(Semaphore::new(requests)), spare: Arc::new(Semaphore::new(SPARE_TURNS)) }
    }

    /// `None`: as many are under way as there may be.
    pub(crate) fn take(&self) -> Option<Turn> {
        take(&self.requests, false)
    }

    pub(crate) fn take_spare(&self) -> Option<Turn> {
        take(&self.spare, true)
    }
}

fn take(turns: &Arc<Semaphore>, is_spare: bool) -> Option<Turn> {
    let permit = turns.clone().try_acquire_owned().ok()?;
    Some(Turn { _permit: Arc::new(permit), is_spare })
}
