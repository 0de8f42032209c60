//! The warm pool: running VMs of the default image and size, restored, idle and without an owner.
//!
//! ```text
//!  made in the background ──▶ ready ──▶ claimed: given its identity, and a workspace from then on
//!                               └──▶ ended, outdated, or in the way: removed
//! ```
//!
//! Nothing of the pool is in the ledger, and its VMs are in no list. Their directories are described as standby,
//! which is why the next daemon removes what a crash leaves of them. The module `refill` makes and removes the VMs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentiso_core::resources::Resources;
use tokio::sync::Notify;

use crate::info::VmIdentity;
use crate::vms::{ImageRef, Vm, VmSpec};

/// A running VM that is no workspace yet, with an id and an address of its own.
#[derive(Debug)]
pub(crate) struct Standby {
    pub(crate) identity: VmIdentity,
    pub(crate) image: ImageRef,
    pub(crate) spec: VmSpec,
    pub(crate) vm: Arc<dyn Vm>,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    ready: Mutex<Vec<Standby>>,
    /// Notified when a VM was claimed.
    pub(crate) changed: Notify,
}

impl Pool {
    pub(crate) fn ready(&self) -> MutexGuard<'_, Vec<Standby>> {
        // Every change is one push or remove.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a VM of exactly this image and size. It belongs to the caller from then on.
    pub(crate) fn claim(&self, image: &ImageRef, resources: Resources) -> Option<Standby> {
        let mut ready = self.ready();
        let fits = |standby: &Standby| standby.image == *image && standby.spec.resources == resources;
        let at = ready.iter().position(fits)?;
        let standby = ready.remove(at);
        drop(ready);
        self.changed.notify_one();
        Some(standby)
    }

    /// The number of VMs that are ready.
    pub(crate) fn count(&self) -> usize {
        self.ready().len()
    }

    /// Puts back a VM that was claimed and not touched.
    pub(crate) fn give_back(&self, standby: Standby) {
        self.ready().push(standby);
    }

    /// Takes everything if it is needed, so that others can have the memory and the addresses.
    pub(crate) fn drain_if(&self, needed: bool) -> Vec<Standby> {
        if needed { std::mem::take(&mut *self.ready()) } else { Vec::new() }
    }
}
