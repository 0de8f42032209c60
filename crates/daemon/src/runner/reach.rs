//! Reattaches a VM that an earlier daemon started.
//!
//! A running VM that cannot be reached is left alone: its memory exists nowhere else, and it may answer again once
//! the host is less loaded or its stopped process continues. The runner keeps trying and shows the reason. Only a
//! client's request ends such a VM.

use std::sync::Arc;
use std::time::Duration;

use super::snapshots::Volume;
use super::task::{Runner, pending};
use crate::handle::Live;
use crate::vms::{AttachFailure, Vm, VmRecord};

/// The pause before an unreachable VM is tried again. Nothing signals when it can be reached.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The same if the host lacks something. A person has to repair that, and each try costs work.
const HOST_UNFIT_PAUSE: Duration = Duration::from_secs(60);

impl Runner {
    /// Handles the result of an attempt to attach.
    pub(super) async fn attached(&mut self, record: &VmRecord, found: Result<Arc<dyn Vm>, AttachFailure>) {
        match found {
            Ok(vm) => {
                tracing::info!(workspace = %self.name, pid = record.pid, "reconnected to its running VM");
                self.forget_unreachable();
                self.shared.network.reattached(&self.id, record.pid);
                // Before other tasks get the VM. A failure here is repeated before the next step.
                if let Volume::Unsettled(listing) = self.volume
                    && let Err(error) = self.settle_with(Some(&vm), listing).await
                {
                    tracing::error!(workspace = %self.name, %error, "cannot clean up its disk; will retry");
                }
                self.live.send_replace(Live::Up(vm));
            }
            Err(AttachFailure::Gone) => {
                let reason = match self.is_out_of_reach() {
                    true => "its VM ended while it could not be reached",
                    false => "its VM ended while no daemon was running",
                };
                self.forget_unreachable();
                self.stopped(Some(reason.to_owned())).await;
            }
            // The record proves that the process is ours, so only a break-in can have changed its program. It must
            // not run on.
            Err(AttachFailure::Altered { reason }) => {
                tracing::error!(workspace = %self.name, pid = record.pid, %reason, "its VM was tampered with and is killed");
                self.shared.vms.halt(&self.spec, Some(record)).await;
                self.forget_unreachable();
                self.stopped(Some(format!("its VM was killed: {reason}"))).await;
            }
            Err(AttachFailure::HostUnfit { reason }) => {
                self.mark_unreachable(record, reason, HOST_UNFIT_PAUSE)
            }
            Err(AttachFailure::Unreachable { reason }) => self.mark_unreachable(record, reason, RETRY_PAUSE),
        }
    }

    fn mark_unreachable(&self, record: &VmRecord, reason: String, pause: Duration) {
        if !self.is_out_of_reach() {
            tracing::error!(workspace = %self.name, pid = record.pid, %reason, "its VM is running but cannot be reached; it is left running, will retry");
        }
        self.live.send_replace(Live::OutOfReach { record: record.clone(), pause });
        self.show_unreachable(Some(format!("its VM is running but cannot be reached: {reason}")));
    }

    fn is_out_of_reach(&self) -> bool {
        matches!(*self.live.borrow(), Live::OutOfReach { .. })
    }

    /// Tries once more to attach, unless a request comes in.
    pub(super) async fn try_to_reach(&mut self) {
        let Live::OutOfReach { record, .. } = self.live.borrow().clone() else { return };
        let (shared, spec) = (Arc::clone(&self.shared), self.spec.clone());
        let found = tokio::select! {
            biased;
            found = shared.vms.attach(&spec, &record) => found,
            () = pending(&mut self.queue) => return,
            () = shared.ended.cancelled() => return,
        };
        self.attached(&record, found).await;
    }

    /// Removes the reason from the registry once the VM is reached or gone.
    pub(super) fn forget_unreachable(&self) {
        if self.shared.workspace(&self.id).is_some_and(|workspace| workspace.out_of_reach.is_some()) {
            self.show_unreachable(None);
        }
    }

    fn show_unreachable(&self, reason: Option<String>) {
        self.shared.update(&self.id, |workspace| workspace.out_of_reach = reason);
    }
}
