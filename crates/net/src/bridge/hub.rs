//! All machines of one bridge, and the kernel's side of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use agentiso_core::network::Network;
use tokio::time::Instant;

use super::error::BridgeError;
use super::flows::Counts;
use super::place::{Knowledge, Place};
use super::render::{self, Ground};
use super::settings::BridgeSettings;
use super::wiring::Wiring;

/// Bytes in a second for each megabit in it.
const BYTES_PER_MEGABIT: u64 = 125_000;

#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) settings: BridgeSettings,
    ground: Ground,
    places: RwLock<BTreeMap<Ipv4Addr, Arc<Place>>>,
    /// Held while rules are made and written, so that the last that are written are the last that were made.
    wiring: Mutex<Wiring>,
    /// What the kernel carries by itself is counted here. `None`: it cannot.
    pub(super) counts: Option<Mutex<Counts>>,
}

impl Hub {
    pub(crate) fn new(
        settings: BridgeSettings,
        ground: Ground,
        wiring: Wiring,
        counts: Option<Counts>,
    ) -> Self {
        let (wiring, counts) = (Mutex::new(wiring), counts.map(Mutex::new));
        Self { settings, ground, places: RwLock::default(), wiring, counts }
    }

    pub(crate) fn wiring(&self) -> MutexGuard<'_, Wiring> {
        self.wiring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a machine: a port first, behind which nothing passes, and then its rules.
    pub(crate) fn join(&self, place: &Arc<Place>) -> Result<(), BridgeError> {
        let address = place.seat.address;
        if address == self.settings.address || !self.subnet().contains(address) {
            return Err(BridgeError::AddressForeign { address });
        }
        {
            let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
            if places.contains_key(&address) {
                return Err(BridgeError::AddressTaken { address });
            }
            places.insert(address, place.clone());
        }
        // Before its rules let anything pass.
        self.count(place);
        let mut wiring = self.wiring();
        let joined = wiring.plug(place.plug()).and_then(|()| self.write(&mut wiring, Some(place)));
        drop(wiring);
        joined.inspect_err(|_| self.leave(place))
    }

    /// Disconnects a machine.
    pub(crate) fn leave(&self, place: &Place) {
        self.places.write().unwrap_or_else(PoisonError::into_inner).remove(&place.seat.address);
        let mut wiring = self.wiring();
        if let Err(error) = self.write(&mut wiring, None) {
            tracing::error!(%error, "the rules of a machine that is gone are left");
        }
        wiring.unplug(place.plug());
        drop(wiring);
        self.count_no_more(place);
    }

    /// Removes what an earlier daemon left of machines that are gone. A machine has its place before it has a port, so under
    /// this lock no port is without its place.
    pub(crate) fn sweep(&self) -> Result<(), BridgeError> {
        let mut wiring = self.wiring();
        let places = self.all();
        let wanted: Vec<_> = places.iter().map(|place| place.plug()).collect();
        wiring.sweep(&wanted)
    }

    /// Writes the rules of all machines anew because those of one have changed. If that cannot be done, this one is
    /// taken off the bridge: what it was allowed before may not be allowed any more.
    pub(crate) fn changed(&self, place: &Place) {
        self.rewrite(place);
        self.review(place);
    }

    fn rewrite(&self, place: &Place) {
        let mut wiring = self.wiring();
        let written = self.write(&mut wiring, Some(place));
        let was_cut = place.cut.swap(written.is_err(), Ordering::SeqCst);
        let reconnected = match written {
            Ok(()) if was_cut => wiring.mend(&place.tap),
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::error!(device = place.tap, %error, "its rules cannot be written: it is disconnected");
                wiring.cut(&place.tap)
            }
        };
        if let Err(error) = reconnected {
            tracing::error!(device = place.tap, %error, "its port is not as it should be");
        }
    }

    fn write(&self, wiring: &mut Wiring, changed: Option<&Place>) -> Result<(), BridgeError> {
        let places = self.all();
        let guests: Vec<_> = places.iter().map(|place| place.guest()).collect();
        let written = wiring.set_rules(&render::tables(&self.ground, &guests));
        written.inspect_err(|_| places.iter().for_each(|place| place.not_written()))?;
        match changed {
            None => Ok(()),
            Some(place) => {
                let megabits = place.guard.policy().bandwidth_mbps;
                wiring.set_rate(&place.tap, megabits.map(|megabits| u64::from(megabits) * BYTES_PER_MEGABIT))
            }
        }
    }

    /// Has the rules know the addresses that a guest is about to be told.
    pub(crate) fn learn(&self, place: &Place, told: &[(Ipv4Addr, Instant)]) {
        let mut new = Vec::new();
        let mut outdated = false;
        for (address, until) in told.iter().filter(|(address, _)| !self.is_neighbour(*address)) {
            match place.bind(*address, *until) {
                Knowledge::Current => {}
                Knowledge::None => new.push(*address),
                Knowledge::Outdated => outdated = true,
            }
        }
        if !render::names_matter(&place.guard.policy()) {
            return;
        }
        if outdated {
            return self.rewrite(place);
        }
        if new.is_empty() {
            return;
        }
        let added = self.wiring().add_elements(&render::named_sets(&place.guest_told(&new)));
        if let Err(error) = added {
            tracing::debug!(device = place.tap, %error, "addresses of a name are written with all rules");
            self.rewrite(place);
        }
    }

    pub(crate) fn subnet(&self) -> Network {
        self.ground.subnet
    }

    /// Whether this is an address of the machines' network.
    pub(crate) fn is_neighbour(&self, address: Ipv4Addr) -> bool {
        address != self.settings.address && self.subnet().contains(address)
    }

    pub(crate) fn place_at(&self, address: Ipv4Addr) -> Option<Arc<Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }

    pub(crate) fn place_of(&self, client: SocketAddr) -> Option<Arc<Place>> {
        match client.ip() {
            IpAddr::V4(address) => self.place_at(address),
            IpAddr::V6(_) => None,
        }
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Place>> {
        self.all().into_iter().find(|place| place.name() == name)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Place>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
