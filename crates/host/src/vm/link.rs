//! The connection to the agent, reconnected when it breaks.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use agentiso_agent::{AgentClient, AgentError};
use tokio::time::Instant;

/// An agent that is up answers within milliseconds; an emulated guest on a busy host may need seconds.
const RECONNECT_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct AgentLink {
    socket: PathBuf,
    current: Mutex<Option<AgentClient>>,
    /// Held while connecting: QEMU serves one connection at a time, so a second attempt would only wait.
    connecting: tokio::sync::Mutex<()>,
}

impl AgentLink {
    pub(super) fn new(socket: PathBuf, client: Option<AgentClient>) -> Self {
        Self { socket, current: Mutex::new(client), connecting: tokio::sync::Mutex::new(()) }
    }

    fn alive(&self) -> Option<AgentClient> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // A dead client is dropped, which closes its socket and lets QEMU accept the next.
        current.take_if(|client| client.is_closed());
        current.clone()
    }

    pub(super) async fn client(&self) -> Result<AgentClient, AgentError> {
        if let Some(client) = self.alive() {
            return Ok(client);
        }
        let _alone = self.connecting.lock().await;
        if let Some(client) = self.alive() {
            return Ok(client);
        }
        let client = AgentClient::connect(&self.socket, Instant::now() + RECONNECT_DEADLINE).await?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }

    /// Releases the connection; it ends when the calls that still use it have ended.
    pub(super) fn release(&self) -> Option<AgentClient> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
