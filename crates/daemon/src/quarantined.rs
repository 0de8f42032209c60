//! Machines in quarantine, which run on without us. When one ends, what the host had for its process alone goes: its device
//! and its address at the bridge, and its cgroup. Its files and the address that the registry keeps for it stay for whoever
//! recovers it; a seat makes a device anew.

use std::sync::Arc;

use crate::machines::MachineRecord;
use crate::opening::FoundMachines;
use crate::shared::Shared;

/// Watches every machine in quarantine, also one that is recovered later: what has a seat by then is left alone.
pub(crate) fn watch(shared: &Arc<Shared>, found: &FoundMachines) {
    let ids: Vec<_> = shared.state().registry.quarantine.workspaces.keys().copied().collect();
    for record in ids.iter().filter_map(|id| found.machine(id)) {
        shared.tasks.spawn(release(Arc::clone(shared), record.clone()));
    }
}

async fn release(shared: Arc<Shared>, record: MachineRecord) {
    tokio::select! {
        biased;
        () = shared.ended.cancelled() => {}
        () = shared.machines.stray_ended(&record) => {
            tracing::warn!(pid = record.pid, "a machine that was found in quarantine has ended");
            shared.network.strays_are_gone();
        }
    }
}
