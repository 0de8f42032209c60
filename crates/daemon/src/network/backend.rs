//! The two ways to connect VMs: the gateway in this process, and a bridge of the host.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use agentiso_core::config::{Backend as Chosen, Config, Paths};
use agentiso_core::ids::WorkspaceId;
use agentiso_net::bridge::{Bridge, BridgeError, tap_name};
use agentiso_net::dns::Resolver;
use agentiso_net::flow::log::FlowLog;
use agentiso_net::flow::{Limits, NetIdentity, Service, Settings};
use agentiso_net::gateway::{AttachError, Gateway};
use agentiso_net::policy::Guard;
use thiserror::Error;

use super::connection::Connection;
use super::lane::Lane;
use super::socket::{self, Socket};
use crate::open_files;

/// The port of DNS servers.
const DNS_PORT: u16 = 53;

/// The reason why there is no network at all.
#[derive(Debug, Error)]
pub enum NetworkError {
    #[error("cannot read the host's addresses or open a socket: {0}")]
    Host(#[from] io::Error),
    #[error(transparent)]
    Bridge(#[from] BridgeError),
}

#[derive(Debug, Error)]
pub(crate) enum AttachmentError {
    #[error("cannot listen on the socket {path}: {source}")]
    Socket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start a thread for its network: {0}")]
    Lane(#[source] io::Error),
    #[error(transparent)]
    Gateway(#[from] AttachError),
    #[error(transparent)]
    Bridge(#[from] BridgeError),
}

#[derive(Debug)]
pub(super) enum Backend {
    Gateway { gateway: Gateway, paths: Box<Paths> },
    Bridge(Bridge),
}

impl Backend {
    /// Takes over or removes what an earlier daemon left.
    pub(super) fn open(config: &Config, services: Vec<Arc<dyn Service>>) -> Result<Self, NetworkError> {
        socket::sweep(&config.paths.run)?;
        let upstreams = config.network.dns_servers.iter().map(|server| SocketAddr::from((*server, DNS_PORT)));
        let names = Arc::new(Resolver::new(upstreams.collect()));
        let subnet = config.subnet();
        let open_files = open_files::raise();
        let settings = Settings {
            address: subnet.gateway,
            prefix: subnet.prefix,
            mtu: agentiso_host::MTU,
            services,
            ..Settings::new(names)
        };
        Ok(match config.network.backend.chosen() {
            Chosen::Gateway => {
                let limits = Limits::DEFAULT.within(open_files, config.resources.max_workspaces as usize);
                let gateway = Gateway::new(Settings { limits, ..settings });
                Self::Gateway { gateway, paths: Box::new(config.paths.clone()) }
            }
            Chosen::Bridge => Self::Bridge(Bridge::open(&config.network.bridge_name, settings)?),
        })
    }

    /// Attaches a VM that exists or will exist.
    pub(super) fn connect(
        &self,
        id: &WorkspaceId,
        net_identity: NetIdentity,
        guard: Guard,
        log: FlowLog,
    ) -> Result<Connection, AttachmentError> {
        match self {
            Self::Gateway { gateway, paths } => {
                let lane = Lane::open().map_err(AttachmentError::Lane)?;
                let _entered = lane.runtime().enter();
                let path = paths.workspace_net(id);
                let listening = Socket::listen(paths, id);
                let (socket, listener) =
                    listening.map_err(|source| AttachmentError::Socket { path, source })?;
                let attachment = gateway.attach(net_identity, guard.clone(), log, listener)?;
                Ok(Connection::Gateway { attachment, guard, socket, _lane: lane })
            }
            Self::Bridge(bridge) => {
                let lane = Lane::open().map_err(AttachmentError::Lane)?;
                let _entered = lane.runtime().enter();
                let port = bridge.attach(net_identity, &tap_name(id), guard, log)?;
                Ok(Connection::Bridge { port, _lane: lane })
            }
        }
    }

    /// Removes what VMs of an earlier daemon left in the kernel, once they are gone.
    pub(super) fn sweep(&self) -> Result<(), NetworkError> {
        match self {
            // Its sockets were removed when it was opened.
            Self::Gateway { .. } => Ok(()),
            Self::Bridge(bridge) => Ok(bridge.sweep()?),
        }
    }

    /// Removes the backend after all VMs were disconnected.
    pub(super) fn close(&self) {
        match self {
            Self::Gateway { .. } => {}
            Self::Bridge(bridge) => bridge.close(),
        }
    }
}
