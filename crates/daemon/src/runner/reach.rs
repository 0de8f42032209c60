//! Finding a machine again that an earlier daemon started.
//!
//! One that runs and cannot be reached is left alone: what is in its memory is nowhere else, and a host under load, or
//! whoever stopped its process for a moment, may let it go on. It is tried again, and shown with the reason. Only
//! somebody who asks for it ends it.

use std::sync::Arc;
use std::time::Duration;

use super::handle::Live;
use super::task::Runner;
use crate::error::OpError;
use crate::machines::{AttachFailure, Machine, MachineRecord};

/// How long to leave a machine alone that could not be reached. Nothing tells when it can be.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The same where the host lacks what is needed. Somebody has to mend it, and looking is work.
const HOST_MENDED: Duration = Duration::from_secs(60);

/// A machine that runs and cannot be reached.
#[derive(Clone, Debug)]
pub(super) struct OutOfReach {
    record: MachineRecord,
    /// Until it is tried again.
    pub(super) pause: Duration,
}

impl Runner {
    /// What becomes of a machine that was looked for.
    pub(super) async fn attached(
        &mut self,
        record: &MachineRecord,
        found: Result<Arc<dyn Machine>, AttachFailure>,
    ) {
        match found {
            Ok(machine) => {
                tracing::info!(workspace = %self.name, pid = record.pid, "found again, running");
                self.note_reach(None);
                self.shared.network.found_again(&self.id, record.pid);
                // Before anybody else gets the machine. What fails here is tried again before the next step.
                match self.settle_with(Some(&machine)).await {
                    Ok(()) => self.unsettled = false,
                    Err(error) => tracing::error!(workspace = %self.name, %error, "its disk is not in order"),
                }
                self.live.send_replace(Live::Up(machine));
            }
            Err(AttachFailure::Gone) => {
                let reason = match self.out_of_reach {
                    Some(_) => "its machine ended while it could not be reached",
                    None => "its machine ended while no daemon was running",
                };
                self.note_reach(None);
                self.stopped(Some(reason.to_owned())).await;
            }
            // The record says that the process is ours, and nothing but a break-in makes it another. What it is by now
            // must not go on.
            Err(AttachFailure::Altered { reason }) => {
                tracing::error!(workspace = %self.name, pid = record.pid, %reason, "its machine was broken into; it is ended");
                self.shared.machines.halt(&self.spec, Some(record)).await;
                self.note_reach(None);
                self.stopped(Some(format!("its machine was ended: {reason}"))).await;
            }
            Err(AttachFailure::HostUnfit { reason }) => self.missed(record, reason, HOST_MENDED),
            Err(AttachFailure::Unreachable { reason }) => self.missed(record, reason, TRY_AGAIN),
        }
    }

    fn missed(&mut self, record: &MachineRecord, reason: String, pause: Duration) {
        if self.out_of_reach.is_none() {
            tracing::error!(workspace = %self.name, pid = record.pid, %reason, "it runs but cannot be reached; it is left running and tried again");
        }
        self.note_reach(Some((OutOfReach { record: record.clone(), pause }, reason)));
    }

    /// Looks for the machine once more, unless somebody wants something else of the workspace.
    pub(super) async fn try_to_reach(&mut self) {
        let Some(OutOfReach { record, .. }) = self.out_of_reach.clone() else { return };
        let (shared, spec) = (Arc::clone(&self.shared), self.spec.clone());
        let found = tokio::select! {
            biased;
            found = shared.machines.attach(&spec, &record) => found,
            request = self.queue.recv() => {
                self.waiting = request;
                return;
            }
            () = shared.ended.cancelled() => return,
        };
        self.attached(&record, found).await;
    }

    /// Remembers, for everybody to see, that its machine cannot be reached, or that there is no such machine any more.
    pub(super) fn note_reach(&mut self, missed: Option<(OutOfReach, String)>) {
        if self.out_of_reach.is_none() && missed.is_none() {
            return;
        }
        let (machine, reason) = missed.unzip();
        self.out_of_reach = machine;
        let shown = reason.map(|reason| format!("it runs but cannot be reached: {reason}"));
        self.shared.change(|registry| {
            registry.update(&self.id, |workspace| workspace.out_of_reach = shown);
        });
    }

    /// Its machine runs and was not published: why, if that is known.
    pub(super) fn not_at_hand(&self) -> OpError {
        let name = self.name.clone();
        match self.shared.workspace(&self.id).and_then(|workspace| workspace.out_of_reach) {
            Some(reason) => OpError::OutOfReach { name, reason },
            None => OpError::StillAttaching { name },
        }
    }
}
