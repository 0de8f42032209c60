//! Keeps the warm pool filled, and removes VMs of it that are outdated, in the way or left when the daemon closes.

use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_core::resources::Resources;
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::info::{NetworkInfo, VmIdentity};
use crate::ledger::Holds;
use crate::pool::Standby;
use crate::shared::Shared;
use crate::vms::{ExecSpec, OnSpawn, Progress, Vm, VmSpec};

/// The client that just got a VM uses the host first; then the next VM is made.
const REFILL_DELAY: Duration = Duration::from_secs(1);

/// The delay after a VM could not be made, at first and at most.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// Commands that a VM runs before it counts as ready.
const WARM_UPS: u32 = 5;

/// A generous limit for the smallest command there is.
const WARM_UP_DEADLINE: Duration = Duration::from_secs(60);

/// Ends VMs that are not wanted and removes their files, even if the caller does not wait for it.
pub(crate) async fn discard(shared: &Arc<Shared>, unwanted: Vec<Standby>) {
    let owner = Arc::clone(shared);
    let discarding = shared.tasks.spawn(async move {
        for standby in unwanted {
            standby.vm.kill().await;
            remove(&owner, standby.identity, &standby.spec).await;
        }
    });
    if let Err(error) = discarding.await {
        tracing::error!(%error, "cannot remove all unwanted VMs of the warm pool");
    }
}

async fn remove(shared: &Shared, identity: VmIdentity, spec: &VmSpec) {
    shared.vms.halt(spec, None).await;
    shared.network.leave_files(&spec.id).await;
    if let Err(error) = shared.vms.erase(spec).await {
        tracing::error!(%error, "cannot remove all files of a VM of the warm pool");
    }
    shared.network.detach(&spec.id);
    shared.state().registry.release_identity(identity);
}

/// Keeps the pool filled until the daemon closes, and empties it then.
pub(crate) async fn run(shared: Arc<Shared>) {
    let resources = shared.config.default_resources();
    let size = shared.config.pool.size_for(resources.memory_mb) as usize;
    if size == 0 {
        return;
    }
    let mut patience = RETRY_DELAYS.0;
    loop {
        let closing = shared.closing.clone();
        tokio::select! {
            biased;
            () = closing.cancelled() => break,
            filled = fill(&shared, size, resources) => match filled {
                Ok(()) => {
                    patience = RETRY_DELAYS.0;
                    changed(&shared).await;
                }
                Err(reason) => {
                    tracing::info!(reason, "cannot fill the warm pool yet");
                    let woken = tokio::time::timeout(patience, shared.closing.cancelled()).await;
                    if woken.is_ok() {
                        break;
                    }
                    patience = (patience * 2).min(RETRY_DELAYS.1);
                }
            },
        }
    }
    discard(&shared, shared.pool.drain_if(true)).await;
}

/// Resolves when the pool has changed: a VM was claimed, or one ended by itself (and is then removed).
async fn changed(shared: &Arc<Shared>) {
    let mut ends: FuturesUnordered<_> = {
        let ready = shared.pool.ready();
        ready.iter().map(|standby| ended(standby.spec.id, Arc::clone(&standby.vm))).collect()
    };
    tokio::select! {
        biased;
        () = shared.closing.cancelled() => {}
        () = shared.pool.changed.notified() => {
            // Stops waiting early when the daemon closes.
            let _ = tokio::time::timeout(REFILL_DELAY, shared.closing.cancelled()).await;
        }
        Some(id) = ends.next() => {
            let dead = {
                let mut ready = shared.pool.ready();
                ready.iter().position(|standby| standby.spec.id == id).map(|at| ready.remove(at))
            };
            if let Some(dead) = dead {
                tracing::warn!("a VM of the warm pool ended by itself");
                remove(shared, dead.identity, &dead.spec).await;
            }
        }
    }
}

async fn ended(id: WorkspaceId, vm: Arc<dyn Vm>) -> WorkspaceId {
    vm.exited().await;
    id
}

/// Makes VMs until there are enough, one at a time. VMs of an image that was rebuilt are removed first.
async fn fill(shared: &Arc<Shared>, size: usize, resources: Resources) -> Result<(), String> {
    let name = shared.config.storage.base_image.clone();
    let image = shared.vms.image(&name).map_err(|failure| failure.to_string())?;
    let outdated: Vec<_> = {
        let mut ready = shared.pool.ready();
        let (kept, outdated) = std::mem::take(&mut *ready).into_iter().partition(|s| s.image == image);
        *ready = kept;
        outdated
    };
    discard(shared, outdated).await;
    while shared.pool.ready().len() < size {
        let memory = shared.vms.host_memory();
        let admitted = shared.state().registry.admit_memory(resources.memory_mb, memory);
        admitted.map_err(|error| error.to_string())?;
        let identity = shared.state().registry.take_identity().map_err(|error| error.to_string())?;
        let spec = shared.standby_spec(identity, &image, resources);
        if let Err(error) = shared.network.attach(identity, &spec.identity.hostname, &NetworkInfo::default())
        {
            shared.network.detach(&identity.id);
            shared.state().registry.release_identity(identity);
            return Err(error.to_string());
        }
        // Dropped when the daemon closes; whatever exists by then is removed all the same.
        let mut made = Unfinished { shared, made: Some((identity, spec.clone())), vm: None };
        let described = shared.describe_unowned(&spec, Holds::Standby).await;
        described.map_err(|error| error.to_string())?;
        // The description of its directory is the record of this VM.
        let booted = shared.vms.create(&spec, OnSpawn::default(), &Progress::silent()).await;
        match booted {
            Ok(booted) => {
                made.vm = Some(Arc::clone(&booted.vm));
                warm_up(&*booted.vm).await?;
                made.keep();
                tracing::debug!(rung = %booted.rung, "a VM was added to the warm pool");
                shared.pool.ready().push(Standby { identity, image: image.clone(), spec, vm: booted.vm });
            }
            Err(failure) => {
                made.keep();
                remove(shared, identity, &spec).await;
                return Err(failure.to_string());
            }
        }
    }
    Ok(())
}

/// Runs in the guest what a client will do first, so that the first real command is fast.
async fn warm_up(vm: &dyn Vm) -> Result<(), String> {
    for _ in 0..WARM_UPS {
        let spec = ExecSpec { timeout: Some(WARM_UP_DEADLINE), ..ExecSpec::shell("true") };
        let mut events = vm.agent().exec(spec).await.map_err(|error| error.to_string())?;
        while let Some(event) = events.next().await {
            event.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Ends a VM whose creation was interrupted and removes its directories.
struct Unfinished<'a> {
    shared: &'a Arc<Shared>,
    made: Option<(VmIdentity, VmSpec)>,
    vm: Option<Arc<dyn Vm>>,
}

impl Unfinished<'_> {
    fn keep(mut self) {
        self.made = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some((identity, spec)) = self.made.take() {
            let (shared, vm) = (Arc::clone(self.shared), self.vm.take());
            self.shared.tasks.spawn(async move {
                if let Some(vm) = vm {
                    vm.kill().await;
                }
                remove(&shared, identity, &spec).await;
            });
        }
    }
}
