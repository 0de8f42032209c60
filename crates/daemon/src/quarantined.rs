//! Watches VMs in quarantine, which run on without the daemon.
//!
//! When one ends, the resources that the host held for its process alone are released: its device and its address
//! at the bridge, and its cgroup. Its files, and the address that the registry keeps for it, stay for a later
//! recovery; a new attachment creates a new device.

use std::sync::Arc;

use crate::shared::Shared;
use crate::startup::FoundVms;
use crate::vms::VmRecord;

/// Watches every VM in quarantine, including those recovered later: a VM that has an attachment by then is left
/// alone.
pub(crate) fn watch(shared: &Arc<Shared>, found: &FoundVms) {
    let ids: Vec<_> = shared.state().registry.quarantine.workspaces.keys().copied().collect();
    for record in ids.iter().filter_map(|id| found.vm(id)) {
        shared.tasks.spawn(release(Arc::clone(shared), record.clone()));
    }
}

async fn release(shared: Arc<Shared>, record: VmRecord) {
    tokio::select! {
        biased;
        () = shared.ended.cancelled() => {}
        () = shared.vms.stray_ended(&record) => {
            tracing::warn!(pid = record.pid, "a VM in quarantine has ended");
            shared.network.strays_are_gone();
        }
    }
}
