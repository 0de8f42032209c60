//! Reports the progress of a copy, and ends it when it is cancelled.

use agentiso_sys::Progress;
use tokio_util::sync::CancellationToken;

use super::error::CarryError;

/// The step between two reports is this many bytes or this part of the total, whichever is larger. More reports would
/// only keep the receiver busy.
const REPORT_EVERY: u64 = 16 << 20;
const REPORTS: u64 = 20;

const MIB: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Meter {
    pub(super) what: &'static str,
    pub(super) total: u64,
    pub(super) progress: Progress,
    pub(super) cancel: CancellationToken,
    done: u64,
    reported: u64,
}

impl Meter {
    pub(super) fn new(what: &'static str, progress: &Progress, cancel: &CancellationToken) -> Self {
        Self { what, total: 0, progress: progress.clone(), cancel: cancel.clone(), done: 0, reported: 0 }
    }

    /// Counts copied bytes. Returns an error if the copy was cancelled.
    pub(super) fn advance(&mut self, bytes: u64) -> Result<(), CarryError> {
        if self.cancel.is_cancelled() {
            return Err(CarryError::Cancelled);
        }
        self.done += bytes;
        let step = REPORT_EVERY.max(self.total / REPORTS);
        if self.done - self.reported >= step || self.done == self.total {
            self.reported = self.done;
            let message = format!("{}: {} of {} MB", self.what, self.done / MIB, self.total / MIB);
            self.progress.report(&message, Some(self.done as f32 / self.total.max(1) as f32));
        }
        Ok(())
    }
}
