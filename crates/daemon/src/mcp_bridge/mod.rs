//! MCP for what runs inside a workspace, at a port of the gateway.
//!
//! ```text
//!  guest ── gateway_ip:port ── gateway (whose wire?) ── front of that workspace ── session bound to it ── MCP
//! ```
//!
//! Who speaks is known from the wire and not from the token, so a token is of use in its own workspace only. It is kept as
//! a hash with the workspace and goes with it.

mod error;
mod inside;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use agentiso_core::config::Config;
use agentiso_core::ids::WorkspaceId;
use agentiso_http::{Front, Hosts, Settings};
use agentiso_net::gateway::{Duplex, Service};
use futures::future::BoxFuture;

pub use error::McpBridgeError;
use inside::Inside;

use crate::mcp::McpHandler;
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) struct McpBridge {
    address: SocketAddrV4,
    /// Set when the daemon begins to serve; until then nobody is answered.
    behind: OnceLock<Behind>,
    fronts: Mutex<HashMap<WorkspaceId, Arc<Front<Inside>>>>,
}

struct Behind {
    shared: Weak<Shared>,
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
            Arc::new(Self { address, behind: OnceLock::new(), fronts: Mutex::default() })
        })
    }

    /// Where guests find it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// From now on guests are served.
    pub(crate) fn begin(&self, shared: &Arc<Shared>, mcp: Arc<dyn McpHandler>) {
        if self.behind.set(Behind { shared: Arc::downgrade(shared), mcp }).is_err() {
            tracing::error!("the MCP bridge was begun twice");
        }
    }

    /// The workspace is gone, or its token: so are the sessions that it opened.
    pub(crate) fn forget(&self, id: &WorkspaceId) {
        if let Some(front) = self.fronts().remove(id) {
            front.close();
        }
    }

    fn fronts(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Arc<Front<Inside>>>> {
        // Every change is one insert or remove.
        self.fronts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn front_of(&self, guest: Ipv4Addr) -> Option<Arc<Front<Inside>>> {
        let Behind { shared, mcp } = self.behind.get()?;
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
        let front = self.front_of(guest);
        let hosts = Hosts::new(SocketAddr::V4(self.address), Vec::new());
        Box::pin(async move {
            if let Some(front) = front {
                front.serve(stream, &hosts).await;
            }
        })
    }
}
