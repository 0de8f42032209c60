//! Early end of a comparison: by cancellation or at a deadline.
//!
//! A crafted disk can require far more work than an ordinary one of its size. All work is reading and processing of
//! read data, and both check here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use thiserror::Error;

/// The conditions that end a comparison. There are none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch<'a> {
    /// The deadline.
    pub deadline: Option<Instant>,
    /// Set to true by another thread.
    pub cancelled: Option<&'a AtomicBool>,
}

/// The reason why a comparison ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Ended {
    #[error("the comparison took too long and was ended")]
    Deadline,
    #[error("the comparison was cancelled")]
    Cancelled,
}

impl Watch<'_> {
    /// The reason to end at this point, if there is one.
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
