//! MCP for what runs inside a workspace, at a port of the gateway.
//!
//! ```text
//!  guest ── gateway_ip:port ── gateway (whose wire?) ── front of that workspace ── session bound to it ── MCP
//! ```
//!
//! Who speaks is known from the wire and not from the token, so a token is of use in its own workspace only. It is kept as
//! a hash with the workspace and goes with it. Whoever has one may also use the host's model server, if there is one.

mod error;
mod inside;
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

pub use error::McpBridgeError;
use inside::Inside;
use models::{ModelServer, Models};

use crate::mcp::McpHandler;
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) struct McpBridge {
    address: SocketAddrV4,
    models: Option<ModelServer>,
    /// Set when the daemon begins to serve; until then nobody is answered.
    behind: OnceLock<Behind>,
    fronts: Mutex<HashMap<WorkspaceId, Arc<Front<Inside>>>>,
}

struct Behind {
    shared: Weak<Shared>,
    /// The daemon's own: what carries frames is not kept busy with anything else.
    runtime: Handle,
    mcp: Arc<dyn McpHandler>,
}

impl std::fmt::Debug for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Behind(..)")
    }
}

impl McpBridge {
    /// `None`: it is not enabled.
    pub(crate) fn of(config: &Config) -> Option<Arc<Self>> {
        let bridge = &config.mcp_bridge;
        bridge.enabled.then(|| {
            let address = SocketAddrV4::new(bridge.bind_addr, bridge.port);
            let models = bridge.ollama_port.map(ModelServer::new);
            Arc::new(Self { address, models, behind: OnceLock::new(), fronts: Mutex::default() })
        })
    }

    /// What the network brings guests to.
    pub(crate) fn services(self: &Arc<Self>) -> Vec<Arc<dyn Service>> {
        let mut services: Vec<Arc<dyn Service>> = vec![self.clone()];
        if self.models.is_some() {
            services.push(Arc::new(Models(self.clone())));
        }
        services
    }

    /// Where guests find it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// From now on guests are served. Must be called within the daemon's runtime.
    pub(crate) fn begin(&self, shared: &Arc<Shared>, mcp: Arc<dyn McpHandler>) {
        let behind = Behind { shared: Arc::downgrade(shared), runtime: Handle::current(), mcp };
        if self.behind.set(behind).is_err() {
            tracing::error!("the MCP bridge was begun twice");
        }
    }

    /// The workspace is gone, or its token: so are the sessions that it opened.
    pub(crate) fn forget(&self, id: &WorkspaceId) {
        if let Some(front) = self.fronts().remove(id) {
            front.close();
        }
        if let Some(models) = &self.models {
            models.forget(id);
        }
    }

    /// Enters the workspace that has this address, if it was given a token. Under the lock: whoever is forgotten is not
    /// entered again.
    fn enter_holder<T>(&self, guest: Ipv4Addr, enter: impl FnOnce(WorkspaceId) -> T) -> Option<T> {
        let shared = self.behind.get()?.shared.upgrade()?;
        let state = shared.state();
        let workspace = state.registry.at_address(guest)?;
        workspace.bridge_token.is_some().then(|| enter(workspace.id))
    }

    fn fronts(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Arc<Front<Inside>>>> {
        // Every change is one insert or remove.
        self.fronts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn front_of(&self, guest: Ipv4Addr) -> Option<Arc<Front<Inside>>> {
        let Behind { shared, mcp, .. } = self.behind.get()?;
        let alive = shared.upgrade()?;
        let state = alive.state();
        // A machine that stands ready has an address and is nobody's yet.
        let id = state.registry.at_address(guest)?.id;
        // Under the lock: whoever is forgotten is not entered again.
        let mut fronts = self.fronts();
        let inside = || Inside::new(shared.clone(), id, mcp.clone());
        let front = fronts.entry(id).or_insert_with(|| Arc::new(Front::new(inside(), Settings::WORKSPACE)));
        Some(front.clone())
    }
}

impl Service for McpBridge {
    fn port(&self) -> u16 {
        self.address.port()
    }

    fn serve(&self, guest: Ipv4Addr, stream: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        let (Some(front), Some(behind)) = (self.front_of(guest), self.behind.get()) else {
            return Box::pin(std::future::ready(()));
        };
        let hosts = Hosts::new(SocketAddr::V4(self.address), Vec::new());
        let serving = behind.runtime.spawn(async move { front.serve(stream, &hosts).await });
        // It ends when the guest has gone, and was told of an error where it happened.
        Box::pin(AbortOnDropHandle::new(serving).map(drop))
    }
}
