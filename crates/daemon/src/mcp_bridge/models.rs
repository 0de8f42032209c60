//! A model server of the host, for workspaces that have a token of the bridge.
//!
//! It listens on the host's loopback; what comes to the same port of the gateway is carried there, and nothing else of
//! the host can be reached in this way. Requests are the model server's to understand.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_net::gateway::{Duplex, Service};
use futures::future::BoxFuture;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::McpBridge;

/// Connections of one workspace at once, as at the bridge itself.
const MAX_CONNECTIONS: usize = 16;

/// Whoever listens on this host answers at once.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// What one workspace has open.
#[derive(Debug)]
struct Lines {
    places: Arc<Semaphore>,
    ended: CancellationToken,
}

#[derive(Debug)]
pub(super) struct ModelServer {
    /// On the host and at the gateway alike.
    port: u16,
    lines: Mutex<HashMap<WorkspaceId, Lines>>,
}

impl ModelServer {
    pub(super) fn new(port: u16) -> Self {
        Self { port, lines: Mutex::default() }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Lines>> {
        // Every change is one insert or remove.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The workspace is gone, or its token: so is what it has open.
    pub(super) fn forget(&self, id: &WorkspaceId) {
        if let Some(lines) = self.lines().remove(id) {
            lines.ended.cancel();
        }
    }

    fn carry(&self, id: WorkspaceId, mut guest: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        let mut all = self.lines();
        let fresh =
            || Lines { places: Arc::new(Semaphore::new(MAX_CONNECTIONS)), ended: CancellationToken::new() };
        let lines = all.entry(id).or_insert_with(fresh);
        let (place, ended) = (lines.places.clone().try_acquire_owned(), lines.ended.clone());
        drop(all);
        let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port);
        Box::pin(async move {
            let Ok(_place) = place else { return };
            match tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect(server)).await {
                Ok(Ok(mut host)) => {
                    // How it ended is told to both sides by its end.
                    let _ = ended.run_until_cancelled(copy_bidirectional(&mut guest, &mut host)).await;
                }
                Ok(Err(error)) => tracing::debug!(%server, %error, "the model server cannot be reached"),
                Err(_elapsed) => tracing::debug!(%server, "the model server does not answer"),
            }
        })
    }
}

/// The model server of a bridge, as the network knows it.
#[derive(Debug)]
pub(super) struct Models(pub(super) Arc<McpBridge>);

impl Service for Models {
    fn port(&self) -> u16 {
        self.0.models.as_ref().map_or(0, |models| models.port)
    }

    /// Those that were given a token may use what the bridge offers; it is not shown here, because model servers do not
    /// know it.
    fn admits(&self, guest: Ipv4Addr) -> bool {
        self.0.holder_at(guest).is_some()
    }

    fn serve(&self, guest: Ipv4Addr, stream: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        match (self.0.holder_at(guest), &self.0.models) {
            (Some(id), Some(models)) => models.carry(id, stream),
            (None, _) | (_, None) => Box::pin(std::future::ready(())),
        }
    }
}
