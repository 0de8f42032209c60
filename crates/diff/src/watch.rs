//! When a comparison has to end although it is not complete: somebody said so, or its time is up.
//!
//! A crafted disk can ask for far more work than an honest one of its size. All work is reading, or looking at what was
//! read, so both look here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use thiserror::Error;

/// What ends a comparison. By default nothing does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch<'a> {
    /// When its time is up.
    pub deadline: Option<Instant>,
    /// Set to true by another thread.
    pub cancelled: Option<&'a AtomicBool>,
}

/// Why a comparison ended before it was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Ended {
    #[error("the comparison took too long and was ended")]
    Deadline,
    #[error("the comparison was cancelled")]
    Cancelled,
}

impl Watch<'_> {
    /// Why to end now, if there is a reason.
    pub fn over(&self) -> Option<Ended> {
        if self.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
            return Some(Ended::Cancelled);
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline).then_some(Ended::Deadline)
    }

    pub(crate) fn check(&self) -> Result<(), Ended> {
        self.over().map_or(Ok(()), Err)
    }
}
