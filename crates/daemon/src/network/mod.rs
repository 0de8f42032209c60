//! The network of all workspaces, and a seat in it for every one of them.
//!
//! A seat is held for as long as its workspace exists, whether a machine runs or not: forwards listen all the time, and
//! a machine's card connects whenever there is one. After a restart of the daemon, cards at the gateway connect again
//! by themselves, and those at the bridge have never been disconnected.

mod backend;
mod line;
mod socket;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agentiso_core::address::mac_for;
use agentiso_core::config::Config;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::network::NetworkPolicy;
use agentiso_net::gateway::{Ending, Forward, ForwardError, Seat};
use agentiso_net::log::FlowLog;
use agentiso_net::rules::{Guard, HostAddresses};

use crate::info::{NetworkInfo, PortForward};
use crate::registry::Place;
use backend::Backend;
pub use backend::NetworkError;
pub(crate) use backend::SeatError;
use line::Line;

#[derive(Debug)]
pub(crate) struct Network {
    backend: Backend,
    host: HostAddresses,
    address: Ipv4Addr,
    seats: Mutex<HashMap<WorkspaceId, Held>>,
}

/// A seat that is taken.
#[derive(Debug)]
struct Held {
    line: Line,
    log: FlowLog,
}

impl Network {
    /// What an earlier daemon left is taken up or removed. Must be called within the runtime.
    pub(crate) fn open(config: &Config) -> Result<Self, NetworkError> {
        Ok(Self {
            backend: Backend::open(config)?,
            host: HostAddresses::of_this_host()?,
            address: config.subnet().gateway,
            seats: Mutex::default(),
        })
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Held>> {
        // Every change is one insert or remove.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat, before the machine comes up. One that is held already is given this name and these rules. Ports
    /// that somebody else listens on by now are left out, with a word to the log.
    pub(crate) fn seat(&self, place: Place, hostname: &str, network: &NetworkInfo) -> Result<(), SeatError> {
        let mut seats = self.seats();
        if let Some(held) = seats.get(&place.id) {
            held.line.set_name(hostname);
            held.line.set_policy(&network.policy);
            return Ok(());
        }
        let seat = Seat { name: hostname.to_owned(), mac: mac_for(&place.id), address: place.address };
        let guard = Guard::new(network.policy.clone(), self.host.clone(), self.address);
        let log = FlowLog::new();
        let line = self.backend.connect(&place.id, seat, guard, log.clone())?;
        for forward in &network.port_forwards {
            if let Err(error) = line.add_forward(forward.guest_port, Some(forward.host_port)) {
                tracing::error!(workspace = hostname, %error, "a port is not forwarded");
            }
        }
        seats.insert(place.id, Held { line, log });
        Ok(())
    }

    /// The workspace is gone, and everything that was connected to it.
    pub(crate) fn leave(&self, id: &WorkspaceId) {
        let held = self.seats().remove(id);
        drop(held);
    }

    /// Everybody leaves: the daemon ends.
    pub(crate) fn close(&self) {
        let seats = std::mem::take(&mut *self.seats());
        drop(seats);
        self.backend.close();
    }

    pub(crate) fn set_policy(&self, id: &WorkspaceId, policy: &NetworkPolicy) {
        if let Some(held) = self.seats().get(id) {
            held.line.set_policy(policy);
        }
    }

    pub(crate) fn forward(
        &self,
        id: &WorkspaceId,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Option<Result<PortForward, ForwardError>> {
        let added = self.seats().get(id)?.line.add_forward(guest_port, host_port);
        Some(added.map(port_forward))
    }

    /// Ends a forward. One whose port could not be had is not there, which is as well.
    pub(crate) fn end_forward(&self, id: &WorkspaceId, guest_port: u16) -> Option<Ending> {
        self.seats().get(id)?.line.remove_forward(guest_port).ok()
    }

    /// What its machine opened and was refused, while this daemon runs.
    pub(crate) fn log(&self, id: &WorkspaceId) -> Option<FlowLog> {
        self.seats().get(id).map(|held| held.log.clone())
    }
}

fn port_forward(forward: Forward) -> PortForward {
    PortForward { host_port: forward.host_port, guest_port: forward.guest_port }
}
