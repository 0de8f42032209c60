//! The state that all connections to one backend share.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::permits::Permits;
use crate::session::Sessions;
use crate::settings::{MAX_DISMISSALS, Settings};
use crate::upstream::Upstream;

/// Serves one backend. Dropping it ends all its sessions.
#[derive(Debug)]
pub struct Front<B> {
    pub(crate) backend: B,
    pub(crate) settings: Settings,
    pub(crate) sessions: Sessions,
    pub(crate) connections: Semaphore,
    /// Connections beyond the limit that are being sent a refusal.
    pub(crate) dismissals: Semaphore,
    pub(crate) permits: Permits,
    /// Shared by stateless requests. It is kept, because workspaces that they create belong to its session.
    stateless: tokio::sync::Mutex<Option<Arc<Upstream>>>,
    pub(crate) closing: CancellationToken,
}

impl<B: Backend> Front<B> {
    pub fn new(backend: B, settings: Settings) -> Self {
        Self {
            backend,
            settings,
            sessions: Sessions::new(settings.max_sessions),
            connections: Semaphore::new(settings.max_connections),
            dismissals: Semaphore::new(MAX_DISMISSALS),
            permits: Permits::new(settings.max_requests),
            stateless: tokio::sync::Mutex::default(),
            closing: CancellationToken::new(),
        }
    }

    /// Stops serving: connections end as soon as nothing is in progress on them.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// The connection of stateless requests; opened again if the server ended it.
    pub(crate) async fn stateless_upstream(&self) -> Result<Arc<Upstream>, String> {
        let mut stateless = self.stateless.lock().await;
        if let Some(upstream) = stateless.as_ref().filter(|upstream| !upstream.is_gone()) {
            return Ok(upstream.clone());
        }
        let upstream = Arc::new(Upstream::new(self.backend.open().await?, None));
        *stateless = Some(upstream.clone());
        Ok(upstream)
    }
}
