//! The network of all workspaces: a gateway in this process, and a seat at it for every workspace.
//!
//! A seat is held for as long as its workspace exists, whether a machine runs or not: forwards listen all the time, and
//! a machine's card connects whenever there is one. After a restart of the daemon the cards connect again by themselves.

use std::collections::HashMap;
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
    AttachError, Attachment, Ending, Forward, ForwardError, Gateway, GatewaySettings, Seat,
};
use agentiso_net::log::FlowLog;
use agentiso_net::rules::{Guard, HostAddresses};
use thiserror::Error;
use tokio::net::UnixListener;

use crate::info::{NetworkInfo, PortForward};
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
    seats: Mutex<HashMap<WorkspaceId, Held>>,
}

/// A seat that is taken.
#[derive(Debug)]
struct Held {
    attachment: Attachment,
    guard: Guard,
    log: FlowLog,
    socket: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.socket) {
            tracing::warn!(socket = %self.socket.display(), %error, "a socket is left");
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

    fn seats(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Held>> {
        // Every change is one insert or remove.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a seat, before the machine comes up. One that is held already is given this name and these rules. Ports
    /// that somebody else listens on by now are left out, with a word to the log.
    pub(crate) fn seat(&self, place: Place, hostname: &str, network: &NetworkInfo) -> Result<(), SeatError> {
        let mut seats = self.seats();
        if let Some(held) = seats.get(&place.id) {
            held.attachment.set_name(hostname);
            held.guard.set_policy(network.policy.clone());
            return Ok(());
        }
        let socket = self.paths.workspace_net(&place.id);
        let listener =
            listen(&socket).map_err(|source| SeatError::Socket { path: socket.clone(), source })?;
        let seat = Seat { name: hostname.to_owned(), mac: mac_for(&place.id), address: place.address };
        let guard = Guard::new(network.policy.clone(), self.host.clone(), self.address);
        let log = FlowLog::new();
        let attached = self.gateway.attach(seat, guard.clone(), log.clone(), listener);
        let attachment = attached.inspect_err(|_| {
            // It was just made; one that cannot be removed is removed by the next daemon.
            let _ = remove(&socket);
        })?;
        for forward in &network.port_forwards {
            if let Err(error) = attachment.add_forward(forward.guest_port, Some(forward.host_port)) {
                tracing::error!(workspace = hostname, %error, "a port is not forwarded");
            }
        }
        seats.insert(place.id, Held { attachment, guard, log, socket });
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
    }

    pub(crate) fn set_policy(&self, id: &WorkspaceId, policy: &NetworkPolicy) {
        if let Some(held) = self.seats().get(id) {
            held.guard.set_policy(policy.clone());
        }
    }

    pub(crate) fn forward(
        &self,
        id: &WorkspaceId,
        guest_port: u16,
        host_port: Option<u16>,
    ) -> Option<Result<PortForward, ForwardError>> {
        let added = self.seats().get(id)?.attachment.add_forward(guest_port, host_port);
        Some(added.map(port_forward))
    }

    /// Ends a forward. One whose port could not be had is not there, which is as well.
    pub(crate) fn end_forward(&self, id: &WorkspaceId, guest_port: u16) -> Option<Ending> {
        self.seats().get(id)?.attachment.remove_forward(guest_port).ok()
    }

    /// What its machine opened and was refused, while this daemon runs.
    pub(crate) fn log(&self, id: &WorkspaceId) -> Option<FlowLog> {
        self.seats().get(id).map(|held| held.log.clone())
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
