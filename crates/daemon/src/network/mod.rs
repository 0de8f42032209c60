//! The network of all workspaces, and a seat in it for every one of them.
//!
//! A seat is held for as long as its workspace exists, whether a machine runs or not: forwards listen all the time, and
//! a machine's card connects whenever there is one. What a machine had open ends with it. After a restart of the daemon,
//! cards at the gateway connect again by themselves, and those at the bridge have never been disconnected. What cannot be
//! had (a seat, a port of the host) is kept as a [`NetworkTrouble`] of the workspace and tried again when it is started.

mod backend;
mod lane;
mod line;
mod opening;
mod socket;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentiso_core::address::mac_for;
use agentiso_core::config::{Config, Paths};
use agentiso_core::ids::WorkspaceId;
use agentiso_core::network::{NetworkPolicy, PolicyChange, PolicyProblems};
use agentiso_net::gateway::{Ending, Forward, ForwardError, Seat};
use agentiso_net::log::FlowLog;
use agentiso_net::rules::{Guard, HostAddresses};

use crate::info::{NetworkInfo, NetworkTrouble, PortForward};
use crate::mcp_bridge::McpBridge;
use crate::registry::Place;
use crate::shared::Shared;
use backend::Backend;
pub use backend::NetworkError;
pub(crate) use backend::SeatError;
use line::Line;
pub(crate) use opening::Opening;

#[derive(Debug)]
pub(crate) struct Network {
    backend: Backend,
    host: HostAddresses,
    address: Ipv4Addr,
    paths: Paths,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    held: HashMap<WorkspaceId, Held>,
    /// Why workspaces have none.
    refused: HashMap<WorkspaceId, String>,
}

/// A seat that is taken.
#[derive(Debug)]
struct Held {
    line: Line,
    log: FlowLog,
    /// What the ledger says, without what is open for one call only.
    policy: NetworkPolicy,
    opened: Option<PolicyChange>,
    /// Whom it is near to.
    groups: BTreeSet<String>,
    /// Why forwards do not listen, by the port of the guest.
    unheard: BTreeMap<u16, String>,
}

impl Held {
    /// Has these rules count from here on, with what is open for one call.
    fn apply(&self) -> Result<(), PolicyProblems> {
        match &self.opened {
            None => self.line.set_policy(&self.policy),
            Some(opened) => self.line.set_policy(&opened.apply_to(&self.policy)?),
        }
        Ok(())
    }

    fn set_policy(&mut self, policy: &NetworkPolicy) {
        self.policy.clone_from(policy);
        if let Err(problems) = self.apply() {
            // An opening that does not fit the new policy ends with the old one.
            tracing::warn!(%problems, "what was open for one call is closed");
            self.opened = None;
            self.line.set_policy(policy);
        }
    }

    /// Listens for the forwards that are not listened for yet.
    fn listen(&mut self, forwards: &[PortForward]) {
        self.unheard.clear();
        for PortForward { guest_port, host_port } in forwards {
            match self.line.add_forward(*guest_port, Some(*host_port), &BTreeSet::new()) {
                Ok(_) | Err(ForwardError::Exists { .. }) => {}
                Err(error) => {
                    tracing::error!(guest_port, %error, "a port is not forwarded");
                    self.unheard.insert(*guest_port, error.to_string());
                }
            }
        }
    }
}

impl Network {
    /// What an earlier daemon left is taken up or removed. Must be called within the runtime.
    pub(crate) fn open(config: &Config, bridge: Option<Arc<McpBridge>>) -> Result<Self, NetworkError> {
        Ok(Self {
            backend: Backend::open(config, bridge)?,
            host: HostAddresses::of_this_host()?,
            address: config.subnet().gateway,
            paths: config.paths.clone(),
            seats: Mutex::default(),
        })
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        // Every change is one insert or remove.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat, before the machine comes up. One that is held already is given this name and these rules, and
    /// ports that somebody else listened on are tried again.
    pub(crate) fn seat(&self, place: Place, hostname: &str, network: &NetworkInfo) -> Result<(), SeatError> {
        let mut seats = self.seats();
        if let Some(held) = seats.held.get_mut(&place.id) {
            held.line.set_name(hostname);
            held.set_policy(&network.policy);
            held.listen(&network.port_forwards);
            return Ok(());
        }
        match self.take(place, hostname, network) {
            Ok(held) => {
                seats.refused.remove(&place.id);
                seats.held.insert(place.id, held);
                Ok(())
            }
            Err(error) => {
                seats.refused.insert(place.id, error.to_string());
                Err(error)
            }
        }
    }

    fn take(&self, place: Place, hostname: &str, network: &NetworkInfo) -> Result<Held, SeatError> {
        let seat = Seat { name: hostname.to_owned(), mac: mac_for(&place.id), address: place.address };
        let guard = Guard::new(network.policy.clone(), self.host.clone(), self.address);
        let log = FlowLog::kept_in(&self.paths.workspace_data(&place.id));
        let line = self.backend.connect(&place.id, seat, guard, log.clone())?;
        let (policy, opened) = (network.policy.clone(), None);
        let mut held = Held { line, log, policy, opened, groups: BTreeSet::new(), unheard: BTreeMap::new() };
        held.listen(&network.port_forwards);
        Ok(held)
    }

    /// A machine comes up in the seat.
    pub(crate) fn occupy(&self, id: &WorkspaceId) {
        let mut seats = self.seats();
        if let Some(held) = seats.held.get(id) {
            held.line.occupy();
            seats.refused.remove(id);
        }
    }

    /// A machine of an earlier daemon was found again. One that Landlock holds cannot connect to this daemon.
    pub(crate) fn found_again(&self, id: &WorkspaceId, pid: i32) {
        let mut seats = self.seats();
        let at_gateway = seats.held.get(id).is_some_and(|held| held.line.is_gateway());
        if at_gateway && crate::jail_of(pid) == Some(agentiso_host::jail::Jail::Landlock) {
            let reason = "its network ended with an earlier daemon, because user namespaces are not allowed on this host; \
                          stop and start the workspace";
            seats.refused.insert(*id, reason.to_owned());
        }
    }

    /// The machine that had the seat is gone. Whoever was connected to it is told at once, whoever connects from here on
    /// is refused, and the next machine meets nothing of it.
    pub(crate) async fn vacate(&self, id: &WorkspaceId) {
        let vacated = self.seats().held.get(id).map(|held| held.line.vacate());
        if let Some(vacated) = vacated {
            vacated.await;
        }
    }

    /// The workspace is gone, and everything that was connected to it.
    pub(crate) fn leave(&self, id: &WorkspaceId) {
        let mut seats = self.seats();
        seats.refused.remove(id);
        let held = seats.held.remove(id);
        drop(seats);
        if let Some(held) = held {
            held.line.retire();
        }
    }

    /// Its directory is about to be removed: nothing more is written to the log in it.
    pub(crate) async fn leave_files(&self, id: &WorkspaceId) {
        if let Some(log) = self.log(id) {
            log.leave_files().await;
        }
    }

    /// Everybody leaves: the daemon ends. How their connections ended is on disk when this returns.
    pub(crate) async fn close(&self) {
        let seats = std::mem::take(&mut *self.seats());
        for Held { line, log, .. } in seats.held.into_values() {
            line.disconnect().await;
            log.flush().await;
        }
        self.backend.close();
    }

    /// Strays were removed: what is left of their network goes too.
    pub(crate) fn strays_are_gone(&self) {
        if let Err(error) = self.backend.sweep() {
            tracing::error!(%error, "the network of machines that are gone was not all removed");
        }
    }

    /// What of a workspace's network is not there although it should be.
    pub(crate) fn trouble(&self, id: &WorkspaceId) -> NetworkTrouble {
        let seats = self.seats();
        let forwards = seats.held.get(id).map(|held| held.unheard.clone()).unwrap_or_default();
        NetworkTrouble { seat: seats.refused.get(id).cloned(), forwards }
    }

    pub(crate) fn set_policy(&self, id: &WorkspaceId, policy: &NetworkPolicy) {
        if let Some(held) = self.seats().held.get_mut(id) {
            held.set_policy(policy);
        }
    }

    /// Opens more than the policy says, until the answer is dropped. Changes of the policy count meanwhile.
    pub(crate) fn open_for_call(
        shared: &Arc<Shared>,
        id: &WorkspaceId,
        change: &PolicyChange,
    ) -> Result<Opening, PolicyProblems> {
        if let Some(held) = shared.network.seats().held.get_mut(id) {
            held.opened = Some(change.clone());
            held.apply().inspect_err(|_| held.opened = None)?;
        }
        Ok(Opening::new(shared.clone(), *id))
    }

    fn end_opening(&self, id: &WorkspaceId) {
        if let Some(held) = self.seats().held.get_mut(id) {
            held.opened = None;
            held.line.set_policy(&held.policy);
        }
    }

    /// Puts a machine near to others, or away from them: what is open and no longer allowed ends.
    pub(crate) fn set_groups(&self, id: &WorkspaceId, groups: BTreeSet<String>) {
        if let Some(held) = self.seats().held.get_mut(id).filter(|held| held.groups != groups) {
            held.line.set_groups(groups.clone());
            held.groups = groups;
        }
    }

    /// Adds a forward, at none of the ports that are to be avoided.
    pub(crate) fn forward(
        &self,
        id: &WorkspaceId,
        guest_port: u16,
        host_port: Option<u16>,
        avoid: &BTreeSet<u16>,
    ) -> Option<Result<PortForward, ForwardError>> {
        let mut seats = self.seats();
        let held = seats.held.get_mut(id)?;
        let added = held.line.add_forward(guest_port, host_port, avoid);
        if added.is_ok() {
            held.unheard.remove(&guest_port);
        }
        Some(added.map(port_forward))
    }

    /// Ends a forward. One whose port could not be had is not there, which is as well.
    pub(crate) fn end_forward(&self, id: &WorkspaceId, guest_port: u16) -> Option<Ending> {
        let mut seats = self.seats();
        let held = seats.held.get_mut(id)?;
        held.unheard.remove(&guest_port);
        held.line.remove_forward(guest_port).ok()
    }

    /// What its machine opened and was refused.
    pub(crate) fn log(&self, id: &WorkspaceId) -> Option<FlowLog> {
        self.seats().held.get(id).map(|held| held.log.clone())
    }
}

fn port_forward(forward: Forward) -> PortForward {
    PortForward { host_port: forward.host_port, guest_port: forward.guest_port }
}
