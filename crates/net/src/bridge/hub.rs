//! All VMs of one bridge, and the kernel's side of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use agentiso_core::network::Network;
use tokio::time::Instant;

use super::error::BridgeError;
use super::flows::Counts;
use super::render::{self, BridgeLayout};
use super::vm::{Knowledge, Vm};
use super::wiring::Wiring;
use crate::flow::Settings;

/// Bytes per second in one megabit per second.
const BYTES_PER_MEGABIT: u64 = 125_000;

#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) settings: Settings,
    layout: BridgeLayout,
    vms: RwLock<BTreeMap<Ipv4Addr, Arc<Vm>>>,
    /// Locked while rules are rendered and written, so that the rules written last are those rendered last.
    wiring: Mutex<Wiring>,
    /// Counts of the flows that the kernel carries by itself. `None`: the kernel cannot count them.
    pub(super) counts: Option<Mutex<Counts>>,
}

impl Hub {
    pub(crate) fn new(
        settings: Settings,
        layout: BridgeLayout,
        wiring: Wiring,
        counts: Option<Counts>,
    ) -> Self {
        let (wiring, counts) = (Mutex::new(wiring), counts.map(Mutex::new));
        Self { settings, layout, vms: RwLock::default(), wiring, counts }
    }

    pub(crate) fn wiring(&self) -> MutexGuard<'_, Wiring> {
        self.wiring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a VM: first a port, which passes nothing, and then its rules.
    pub(crate) fn join(&self, vm: &Arc<Vm>) -> Result<(), BridgeError> {
        let address = vm.identity.address;
        if address == self.settings.address || !self.subnet().contains(address) {
            return Err(BridgeError::AddressForeign { address });
        }
        {
            let mut vms = self.vms.write().unwrap_or_else(PoisonError::into_inner);
            if vms.contains_key(&address) {
                return Err(BridgeError::AddressTaken { address });
            }
            vms.insert(address, vm.clone());
        }
        // Before its rules let anything pass.
        self.start_counting(vm);
        let mut wiring = self.wiring();
        let joined = wiring.add_port(vm.port_config()).and_then(|()| self.write(&mut wiring, Some(vm)));
        drop(wiring);
        joined.inspect_err(|_| self.leave(vm))
    }

    /// Disconnects a VM.
    pub(crate) fn leave(&self, vm: &Vm) {
        self.vms.write().unwrap_or_else(PoisonError::into_inner).remove(&vm.identity.address);
        let mut wiring = self.wiring();
        if let Err(error) = self.write(&mut wiring, None) {
            tracing::error!(%error, "cannot remove the rules of a VM that is gone");
        }
        wiring.remove_port(vm.port_config());
        drop(wiring);
        self.stop_counting(vm);
    }

    /// Removes what an earlier daemon left of VMs that are gone. A VM is added here before it gets a port, so under
    /// this lock every port of ours has its VM.
    pub(crate) fn sweep(&self) -> Result<(), BridgeError> {
        let mut wiring = self.wiring();
        let vms = self.all();
        let wanted: Vec<_> = vms.iter().map(|vm| vm.port_config()).collect();
        wiring.sweep(&wanted)
    }

    /// Writes the rules of all VMs again because those of one have changed. If that fails, this VM is disconnected: its
    /// old rules may allow what is not allowed any more.
    pub(crate) fn changed(&self, vm: &Vm) {
        self.rewrite(vm);
        self.review(vm);
    }

    fn rewrite(&self, vm: &Vm) {
        let mut wiring = self.wiring();
        let written = self.write(&mut wiring, Some(vm));
        let was_cut = vm.disconnected.swap(written.is_err(), Ordering::SeqCst);
        let reconnected = match written {
            Ok(()) if was_cut => wiring.bring_up(&vm.tap),
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::error!(device = vm.tap, %error, "cannot write its rules; it is disconnected");
                wiring.take_down(&vm.tap)
            }
        };
        if let Err(error) = reconnected {
            tracing::error!(device = vm.tap, %error, "cannot bring its port up or down");
        }
    }

    fn write(&self, wiring: &mut Wiring, changed: Option<&Vm>) -> Result<(), BridgeError> {
        let vms = self.all();
        let guests: Vec<_> = vms.iter().map(|vm| vm.guest()).collect();
        let written = wiring.set_rules(&render::tables(&self.layout, &guests));
        written.inspect_err(|_| vms.iter().for_each(|vm| vm.not_written()))?;
        match changed {
            None => Ok(()),
            Some(vm) => {
                let megabits = vm.guard.policy().bandwidth_mbps;
                wiring.set_rate(&vm.tap, megabits.map(|megabits| u64::from(megabits) * BYTES_PER_MEGABIT))
            }
        }
    }

    /// Adds the addresses that a guest is about to receive to the rules.
    pub(crate) fn learn(&self, vm: &Vm, told: &[(Ipv4Addr, Instant)]) {
        let mut new = Vec::new();
        let mut outdated = false;
        for (address, until) in told.iter().filter(|(address, _)| !self.is_neighbour(*address)) {
            match vm.bind(*address, *until) {
                Knowledge::Current => {}
                Knowledge::None => new.push(*address),
                Knowledge::Outdated => outdated = true,
            }
        }
        if !render::names_matter(&vm.guard.policy()) {
            return;
        }
        if outdated {
            return self.rewrite(vm);
        }
        if new.is_empty() {
            return;
        }
        let added = self.wiring().add_elements(&render::named_sets(&vm.guest_told(&new)));
        if let Err(error) = added {
            tracing::debug!(device = vm.tap, %error, "cannot add the addresses of a name; writing all rules instead");
            self.rewrite(vm);
        }
    }

    pub(crate) fn subnet(&self) -> Network {
        self.layout.subnet
    }

    /// Whether this is an address in the VMs' network.
    pub(crate) fn is_neighbour(&self, address: Ipv4Addr) -> bool {
        address != self.settings.address && self.subnet().contains(address)
    }

    pub(crate) fn vm_at(&self, address: Ipv4Addr) -> Option<Arc<Vm>> {
        self.vms.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }

    pub(crate) fn vm_of(&self, client: SocketAddr) -> Option<Arc<Vm>> {
        match client.ip() {
            IpAddr::V4(address) => self.vm_at(address),
            IpAddr::V6(_) => None,
        }
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Vm>> {
        self.all().into_iter().find(|vm| vm.name() == name)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Vm>> {
        self.vms.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
