//! What all connections to one backend share.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::session::Sessions;
use crate::settings::{MAX_DISMISSALS, Settings};
use crate::turn::Turns;
use crate::upstream::Upstream;

/// Serves one backend. Dropped, all its sessions end.
#[derive(Debug)]
pub struct Front<B> {
    pub(crate) backend: B,
    pub(crate) settings: Settings,
    pub(crate) sessions: Sessions,
    pub(crate) connections: Semaphore,
    /// Connections that are being told that there is no place for them.
    pub(crate) dismissals: Semaphore,
    pub(crate) turns: Turns,
    /// For requests that stand for themselves. It lasts: what they make belongs to nobody else.
    lone: tokio::sync::Mutex<Option<Arc<Upstream>>>,
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
            turns: Turns::new(settings.max_requests),
            lone: tokio::sync::Mutex::default(),
            closing: CancellationToken::new(),
        }
    }

    /// Connections end as soon as nothing is under way on them.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// The conversation of requests that stand for themselves; opened anew if the server ended it.
    pub(crate) async fn lone(&self) -> Result<Arc<Upstream>, String> {
        let mut lone = self.lone.lock().await;
        if let Some(upstream) = lone.as_ref().filter(|upstream| !upstream.is_gone()) {
            return Ok(upstream.clone());
        }
        let upstream = Arc::new(Upstream::new(self.backend.open().await?, None));
        *lone = Some(upstream.clone());
        Ok(upstream)
    }
}
