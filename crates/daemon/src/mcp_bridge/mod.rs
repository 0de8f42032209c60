//! MCP for programs inside a workspace, at a port of the gateway.
//!
//! ```text
//!  guest ── gateway_ip:port ── gateway (from which VM?) ── front of that workspace ── session bound to it ── MCP
//! ```
//!
//! The network attachment identifies the workspace, not the token, so a token is of use in its own workspace only. The
//! token is kept as a hash with the workspace and is deleted with it. A workspace with a token may also use the host's
//! model server, if there is one.

mod backend;
mod error;
mod models;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use agentiso_core::config::Config;
use agentiso_core::ids::WorkspaceId;
use agentiso_http::{Front, Hosts, Settings};
use agentiso_net::gateway::{Duplex, Service};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use backend::WorkspaceBackend;
pub use error::McpBridgeError;
use models::{ModelServer, Models};

use crate::mcp::McpHandler;
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) struct McpBridge {
    address: SocketAddrV4,
    models: Option<ModelServer>,
    /// Set when the daemon begins to serve; until then no guest is answered.
    daemon: OnceLock<DaemonLink>,
    fronts: Mutex<HashMap<WorkspaceId, Arc<Front<WorkspaceBackend>>>>,
}

struct DaemonLink {
    shared: Weak<Shared>,
    /// The daemon's own runtime: the network's threads, which carry frames, do no other work.
    runtime: Handle,
    mcp: Arc<dyn McpHandler>,
}

impl std::fmt::Debug for DaemonLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DaemonLink(..)")
    }
}

impl McpBridge {
    /// Makes the bridge. `None`: it is not enabled.
    pub(crate) fn of(config: &Config) -> Option<Arc<Self>> {
        let bridge = &config.mcp_bridge;
        bridge.enabled.then(|| {
            let address = SocketAddrV4::new(bridge.bind_addr, bridge.port);
            let models = bridge.ollama_port.map(ModelServer::new);
            Arc::new(Self { address, models, daemon: OnceLock::new(), fronts: Mutex::default() })
        })
    }

    /// The services that guests reach through the network.
    pub(crate) fn services(self: &Arc<Self>) -> Vec<Arc<dyn Service>> {
        let mut services: Vec<Arc<dyn Service>> = vec![self.clone()];
        if self.models.is_some() {
            services.push(Arc::new(Models(self.clone())));
        }
        services
    }

    /// The URL for guests.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Begins to serve guests. Must be called within the daemon's runtime.
    pub(crate) fn begin(&self, shared: &Arc<Shared>, mcp: Arc<dyn McpHandler>) {
        let daemon = DaemonLink { shared: Arc::downgrade(shared), runtime: Handle::current(), mcp };
        if self.daemon.set(daemon).is_err() {
            tracing::error!("the MCP bridge was started twice");
        }
    }

    /// Ends the sessions of a workspace that is gone or whose token was revoked.
    pub(crate) fn forget(&self, id: &WorkspaceId) {
        if let Some(front) = self.fronts().remove(id) {
            front.close();
        }
        if let Some(models) = &self.models {
            models.forget(id);
        }
    }

    /// Calls `enter` for the workspace that has this address, if it has a token. Runs under the registry's lock, so
    /// that a workspace that was forgotten is not entered again.
    fn with_token_holder<T>(&self, guest: Ipv4Addr, enter: impl FnOnce(WorkspaceId) -> T) -> Option<T> {
        let shared = self.daemon.get()?.shared.upgrade()?;
        let state = shared.state();
        let workspace = state.registry.at_address(guest)?;
        workspace.bridge_token.is_some().then(|| enter(workspace.id))
    }

    fn fronts(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Arc<Front<WorkspaceBackend>>>> {
        // A panic cannot leave the map inconsistent: every change is one insert or remove.
        self.fronts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn front_of(&self, guest: Ipv4Addr) -> Option<Arc<Front<WorkspaceBackend>>> {
        let DaemonLink { shared, mcp, .. } = self.daemon.get()?;
        let alive = shared.upgrade()?;
        let state = alive.state();
        // A VM of the warm pool has an address and belongs to no workspace yet.
        let id = state.registry.at_address(guest)?.id;
        // Inserted under the registry's lock, so that a workspace that was forgotten is not entered again.
        let mut fronts = self.fronts();
        let backend = || WorkspaceBackend::new(shared.clone(), id, mcp.clone());
        let front = fronts.entry(id).or_insert_with(|| Arc::new(Front::new(backend(), Settings::WORKSPACE)));
        Some(front.clone())
    }
}

impl Service for McpBridge {
    fn port(&self) -> u16 {
        self.address.port()
    }

    fn serve(&self, guest: Ipv4Addr, stream: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        let (Some(front), Some(daemon)) = (self.front_of(guest), self.daemon.get()) else {
            return Box::pin(std::future::ready(()));
        };
        let hosts = Hosts::new(SocketAddr::V4(self.address), Vec::new());
        let serving = daemon.runtime.spawn(async move { front.serve(stream, &hosts).await });
        // It ends when the guest has disconnected. Errors were logged where they happened.
        Box::pin(AbortOnDropHandle::new(serving).map(drop))
    }
}
