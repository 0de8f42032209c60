//! Reattaches a VM that an earlier daemon started.
//!
//! A running VM that cannot be reached is left alone: its memory exists nowhere else, and it may answer again once
//! the host is less loaded or its stopped process continues. The runner keeps trying and shows the reason. Only a
//! client's request ends such a VM.

use std::sync::Arc;
use std::time::Duration;

use super::task::Runner;
use crate::error::OpError;
use crate::handle::Live;
use crate::vms::{AttachFailure, Vm, VmRecord};

/// The pause before an unreachable VM is tried again. Nothing signals when it can be reached.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The same if the host lacks something. A person has to repair that, and each try costs work.
const HOST_UNFIT_PAUSE: Duration = Duration::from_secs(60);

/// A running VM that cannot be reached.
#[derive(Clone, Debug)]
pub(super) struct OutOfReach {
    record: VmRecord,
    /// The pause until the next try.
    pub(super) pause: Duration,
}

impl Runner {
    /// Handles the result of an attempt to attach.
    pub(super) async fn attached(&mut self, record: &VmRecord, found: Result<Arc<dyn Vm>, AttachFailure>) {
        match found {
            Ok(vm) => {
                tracing::info!(workspace = %self.name, pid = record.pid, "reconnected to its running VM");
                self.record_reachability(None);
                self.shared.network.reattached(&self.id, record.pid);
                // Before other tasks get the VM. A failure here is repeated before the next step.
                match self.settle_with(Some(&vm)).await {
                    Ok(()) => self.unsettled = false,
                    Err(error) => {
                        tracing::error!(workspace = %self.name, %error, "cannot clean up its disk; will retry")
                    }
                }
                self.live.send_replace(Live::Up(vm));
            }
            Err(AttachFailure::Gone) => {
                let reason = match self.out_of_reach {
                    Some(_) => "its VM ended while it could not be reached",
                    None => "its VM ended while no daemon was running",
                };
                self.record_reachability(None);
                self.stopped(Some(reason.to_owned())).await;
            }
            // The record proves that the process is ours, so only a break-in can have changed its program. It must
            // not run on.
            Err(AttachFailure::Altered { reason }) => {
                tracing::error!(workspace = %self.name, pid = record.pid, %reason, "its VM was tampered with and is killed");
                self.shared.vms.halt(&self.spec, Some(record)).await;
                self.record_reachability(None);
                self.stopped(Some(format!("its VM was killed: {reason}"))).await;
            }
            Err(AttachFailure::HostUnfit { reason }) => {
                self.mark_unreachable(record, reason, HOST_UNFIT_PAUSE)
            }
            Err(AttachFailure::Unreachable { reason }) => self.mark_unreachable(record, reason, RETRY_PAUSE),
        }
    }

    fn mark_unreachable(&mut self, record: &VmRecord, reason: String, pause: Duration) {
        if self.out_of_reach.is_none() {
            tracing::error!(workspace = %self.name, pid = record.pid, %reason, "its VM is running but cannot be reached; it is left running, will retry");
        }
        self.record_reachability(Some((OutOfReach { record: record.clone(), pause }, reason)));
    }

    /// Tries once more to attach, unless a request comes in.
    pub(super) async fn try_to_reach(&mut self) {
        let Some(OutOfReach { record, .. }) = self.out_of_reach.clone() else { return };
        let (shared, spec) = (Arc::clone(&self.shared), self.spec.clone());
        let found = tokio::select! {
            biased;
            found = shared.vms.attach(&spec, &record) => found,
            request = self.queue.recv() => {
                self.waiting = request;
                return;
            }
            () = shared.ended.cancelled() => return,
        };
        self.attached(&record, found).await;
    }

    /// Records in the registry that the VM cannot be reached, or that this no longer holds.
    pub(super) fn record_reachability(&mut self, failure: Option<(OutOfReach, String)>) {
        if self.out_of_reach.is_none() && failure.is_none() {
            return;
        }
        let (vm, reason) = failure.unzip();
        self.out_of_reach = vm;
        let shown = reason.map(|reason| format!("its VM is running but cannot be reached: {reason}"));
        self.shared.change(|registry| {
            registry.update(&self.id, |workspace| workspace.out_of_reach = shown);
        });
    }

    /// The error for a VM that runs but is not published, with the reason if it is known.
    pub(super) fn unavailable(&self) -> OpError {
        let name = self.name.clone();
        match self.shared.workspace(&self.id).and_then(|workspace| workspace.out_of_reach) {
            Some(reason) => OpError::OutOfReach { name, reason },
            None => OpError::StillAttaching { name },
        }
    }
}
