//! The network of all workspaces: a gateway in this process, and a seat at it for every workspace.
//!
//! A seat is held for as long as its workspace exists, whether a machine runs or not: forwards listen all the time, and
//! a machine's card connects whenever there is one. After a restart of the daemon the cards connect again by themselves.
//! What cannot be had (a seat, a port of the host) is kept as a [`NetworkTrouble`] of the workspace and tried again when
//! it is started.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentiso_core::address::mac_for;
use agentiso_core::config::{Config, Paths};
use agentiso_core::ids::WorkspaceId;
use agentiso_core::network::NetworkPolicy;
use agentiso_net::dns::Resolver;
use agentiso_net::gateway::{
    AttachError, Attachment, Ending, Forward, ForwardError, Gateway, GatewaySettings, Limits, Seat,
};
use agentiso_net::log::FlowLog;
use agentiso_net::rules::{Guard, HostAddresses};
use thiserror::Error;
use tokio::net::UnixListener;

use crate::info::{NetworkInfo, NetworkTrouble, PortForward};
use crate::open_files;
use crate::registry::Place;

/// Where names are asked for.
const DNS_PORT: u16 = 53;

#[derive(Debug, Error)]
pub(crate) enum SeatError {
    #[error("the socket {path} cannot be listened on: {source}")]
    Socket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Gateway(#[from] AttachError),
}

#[derive(Debug)]
pub(crate) struct Network {
    gateway: Gateway,
    host: HostAddresses,
    address: std::net::Ipv4Addr,
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
    attachment: Attachment,
    guard: Guard,
    log: FlowLog,
    /// Why forwards do not listen, by the port of the guest.
    unheard: BTreeMap<u16, String>,
    _socket: Socket,
}

impl Held {
    /// Listens for the forwards that are not listened for yet.
    fn listen(&mut self, forwards: &[PortForward]) {
        self.unheard.clear();
        for PortForward { guest_port, host_port } in forwards {
            match self.attachment.add_forward(*guest_port, Some(*host_port)) {
                Ok(_) | Err(ForwardError::Exists { .. }) => {}
                Err(error) => {
                    tracing::error!(guest_port, %error, "a port is not forwarded");
                    self.unheard.insert(*guest_port, error.to_string());
                }
            }
        }
    }
}

/// The file of a socket, removed with its seat.
#[derive(Debug)]
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::warn!(socket = %self.0.display(), %error, "a socket is left");
        }
    }
}

impl Network {
    /// Sockets of an earlier daemon go; every workspace gets its own again.
    pub(crate) fn open(config: &Config) -> io::Result<Self> {
        for entry in fs::read_dir(&config.paths.run)?.flatten() {
            if Paths::is_workspace_net(&entry.file_name()) {
                remove(&entry.path())?;
            }
        }
        let upstreams = config.network.dns_servers.iter().map(|server| SocketAddr::from((*server, DNS_PORT)));
        let names = Arc::new(Resolver::new(upstreams.collect()));
        let subnet = config.subnet();
        let settings = GatewaySettings {
            address: subnet.gateway,
            prefix: subnet.prefix,
            mtu: agentiso_host::MTU,
            limits: Limits::DEFAULT.within(open_files::raise(), config.resources.max_workspaces as usize),
            ..GatewaySettings::new(names)
        };
        Ok(Self {
            gateway: Gateway::new(settings),
            host: HostAddresses::of_this_host()?,
            address: subnet.gateway,
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
            held.attachment.set_name(hostname);
            held.guard.set_policy(network.policy.clone());
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
        let socket = self.paths.workspace_net(&place.id);
        let listener =
            listen(&socket).map_err(|source| SeatError::Socket { path: socket.clone(), source })?;
        let seat = Seat { name: hostname.to_owned(), mac: mac_for(&place.id), address: place.address };
        let guard = Guard::new(network.policy.clone(), self.host.clone(), self.address);
        let log = FlowLog::kept_in(&self.paths.workspace_data(&place.id));
        // From here on it goes with the seat, or with the attempt to have one.
        let socket = Socket(socket);
        let attachment = self.gateway.attach(seat, guard.clone(), log.clone(), listener)?;
        let mut held = Held { attachment, guard, log, unheard: BTreeMap::new(), _socket: socket };
        held.listen(&network.port_forwards);
        Ok(held)
    }

    /// The workspace is gone, and everything that was connected to it.
    pub(crate) fn leave(&self, id: &WorkspaceId) {
        let mut seats = self.seats();
        seats.refused.remove(id);
        let held = seats.held.remove(id);
        drop(seats);
        drop(held);
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
        for Held { attachment, log, .. } in seats.held.into_values() {
            attachment.detach().await;
            log.flush().await;
        }
    }

    /// What of a workspace's network is not there although it should be.
    pub(crate) fn trouble(&self, id: &WorkspaceId) -> NetworkTrouble {
        let seats = self.seats();
        let forwards = seats.held.get(id).map(|held| held.unheard.clone()).unwrap_or_default();
        NetworkTrouble { seat: seats.refused.get(id).cloned(), forwards }
    }

    pub(crate) fn set_policy(&self, id: &WorkspaceId, policy: &NetworkPolicy) {
        if let Some(held) = self.seats().held.get(id) {
            held.guard.set_policy(policy.clone());
        }
    }

    pub(crate) fn forward(
        &self,
        id: &WorkspaceId,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Option<Result<PortForward, ForwardError>> {
        let mut seats = self.seats();
        let held = seats.held.get_mut(id)?;
        let added = held.attachment.add_forward(guest_port, host_port);
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
        held.attachment.remove_forward(guest_port).ok()
    }

    /// What its machine opened and was refused.
    pub(crate) fn log(&self, id: &WorkspaceId) -> Option<FlowLog> {
        self.seats().held.get(id).map(|held| held.log.clone())
    }
}

fn port_forward(forward: Forward) -> PortForward {
    PortForward { host_port: forward.host_port, guest_port: forward.guest_port }
}

/// Listens in place of a daemon that is gone.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    remove(socket)?;
    let listener = UnixListener::bind(socket)?;
    // The directory admits only its owner; the socket's own mode says so again.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn remove(socket: &Path) -> io::Result<()> {
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
