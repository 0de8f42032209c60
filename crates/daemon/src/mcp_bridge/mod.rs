//! MCP for programs inside a workspace, at a port of the gateway.
//!
//! ```text
//!  guest ── gateway_ip:port ── gateway (from which VM?) ── front of that workspace ── session bound to it ── MCP
//! ```
//!
//! The network attachment identifies the workspace, not the token, so a token is of use in its own workspace only. The
//! token is kept as a hash with the workspace and is deleted with it. A workspace with a token may also use the host's
//! model server, if there is one.

mod models;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use agentiso_core::config::Config;
use agentiso_core::ids::WorkspaceId;
use agentiso_http::{Backend, Front, Hosts, Settings};
use agentiso_net::flow::{Duplex, Service};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use models::{ModelServer, Models};

/// The workspaces of the daemon, as the bridge needs them.
pub(crate) trait Workspaces: Send + Sync + 'static {
    /// Calls `enter` for the workspace that has this address, and says whether it has a token. Runs under the
    /// registry's lock, so that a workspace that was forgotten is not entered again.
    fn at_address(&self, address: Ipv4Addr, enter: &mut dyn FnMut(WorkspaceId, bool));

    /// Whether this is the token of this workspace.
    fn accepts(&self, id: &WorkspaceId, token: &str) -> bool;

    /// Opens an MCP session that is bound to this workspace.
    fn open(&self, id: WorkspaceId) -> BoxFuture<'_, Result<UnixStream, String>>;
}

#[derive(Debug)]
pub(crate) struct McpBridge {
    address: SocketAddrV4,
    models: Option<ModelServer>,
    /// Set when the daemon begins to serve; until then no guest is answered.
    daemon: OnceLock<DaemonLink>,
    fronts: Mutex<HashMap<WorkspaceId, Arc<Front<WorkspaceBackend>>>>,
}

struct DaemonLink {
    workspaces: Arc<dyn Workspaces>,
    /// The daemon's own runtime: the network's threads, which carry frames, do no other work.
    runtime: Handle,
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
    pub(crate) fn begin(&self, workspaces: Arc<dyn Workspaces>) {
        let daemon = DaemonLink { workspaces, runtime: Handle::current() };
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

    /// Calls `enter` for the workspace that has this address, if it has a token.
    fn with_token_holder<T>(&self, guest: Ipv4Addr, enter: impl FnOnce(WorkspaceId) -> T) -> Option<T> {
        let (mut enter, mut entered) = (Some(enter), None);
        self.daemon.get()?.workspaces.at_address(guest, &mut |id, has_token| {
            entered = enter.take().filter(|_| has_token).map(|enter| enter(id));
        });
        entered
    }

    fn fronts(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Arc<Front<WorkspaceBackend>>>> {
        // A panic cannot leave the map inconsistent: every change is one insert or remove.
        self.fronts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn front_of(&self, guest: Ipv4Addr) -> Option<Arc<Front<WorkspaceBackend>>> {
        let workspaces = &self.daemon.get()?.workspaces;
        let mut found = None;
        // A VM of the warm pool has an address and belongs to no workspace yet.
        workspaces.at_address(guest, &mut |id, _| {
            let backend = || WorkspaceBackend { workspaces: Arc::clone(workspaces), id };
            let mut fronts = self.fronts();
            let front = fronts.entry(id);
            found =
                Some(front.or_insert_with(|| Arc::new(Front::new(backend(), Settings::WORKSPACE))).clone());
        });
        found
    }
}

/// The backend behind the HTTP front of one workspace.
struct WorkspaceBackend {
    workspaces: Arc<dyn Workspaces>,
    id: WorkspaceId,
}

impl std::fmt::Debug for WorkspaceBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WorkspaceBackend").field(&self.id).finish()
    }
}

impl Backend for WorkspaceBackend {
    /// Accepts this workspace's own token only.
    fn knows(&self, token: &str) -> bool {
        self.workspaces.accepts(&self.id, token)
    }

    fn open(&self) -> BoxFuture<'_, Result<UnixStream, String>> {
        self.workspaces.open(self.id)
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
