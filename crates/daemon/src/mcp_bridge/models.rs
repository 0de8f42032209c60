//! Access to a model server of the host, for workspaces that have a token of the bridge.
//!
//! The model server listens on the host's loopback. Connections to the same port of the gateway are carried to it, and
//! nothing else of the host can be reached in this way. The requests are not parsed here.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_net::flow::{Duplex, Service};
use futures::future::{BoxFuture, try_join};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::McpBridge;

/// Connections of one workspace at once, the same as at the bridge itself.
const MAX_CONNECTIONS: usize = 16;

/// A server on this host answers at once.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// A model that is loading or thinking may send nothing for minutes. A connection that its program has forgotten stays
/// silent for ever, and is one of the few that the workspace may have.
const MAX_SILENCE: Duration = Duration::from_secs(30 * 60);

/// Bytes read at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// The open connections of one workspace.
#[derive(Debug)]
struct Connections {
    permits: Arc<Semaphore>,
    ended: CancellationToken,
}

#[derive(Debug)]
pub(super) struct ModelServer {
    /// The same port on the host and at the gateway.
    port: u16,
    connections: Mutex<HashMap<WorkspaceId, Connections>>,
}

impl ModelServer {
    pub(super) fn new(port: u16) -> Self {
        Self { port, connections: Mutex::default() }
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<WorkspaceId, Connections>> {
        // A panic cannot leave the map inconsistent: every change is one insert or remove.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connections of a workspace that is gone or whose token was revoked.
    pub(super) fn forget(&self, id: &WorkspaceId) {
        if let Some(connections) = self.connections().remove(id) {
            connections.ended.cancel();
        }
    }

    /// Only registers the connection; the returned future connects and carries the bytes.
    fn carry(&self, id: WorkspaceId, guest: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        let mut all = self.connections();
        let fresh = || Connections {
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            ended: CancellationToken::new(),
        };
        let connections = all.entry(id).or_insert_with(fresh);
        let (permit, ended) = (connections.permits.clone().try_acquire_owned(), connections.ended.clone());
        drop(all);
        let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port);
        Box::pin(async move {
            let Ok(_permit) = permit else { return };
            match timeout(CONNECT_DEADLINE, TcpStream::connect(server)).await {
                Ok(Ok(host)) => drop(ended.run_until_cancelled(relay(guest, host, MAX_SILENCE)).await),
                Ok(Err(error)) => tracing::debug!(%server, %error, "cannot reach the model server"),
                Err(_elapsed) => tracing::debug!(%server, "the model server does not answer"),
            }
        })
    }
}

/// Carries bytes both ways until both sides have ended, one fails, or neither has sent anything for `max_silence`. Both
/// sides see the end of their connection and need no further report.
async fn relay(guest: impl AsyncRead + AsyncWrite, host: impl AsyncRead + AsyncWrite, max_silence: Duration) {
    let ((from_guest, to_guest), (from_host, to_host)) = (split(guest), split(host));
    let heard = Notify::new();
    let both = try_join(copy_one_way(from_guest, to_host, &heard), copy_one_way(from_host, to_guest, &heard));
    let silence = async { while timeout(max_silence, heard.notified()).await.is_ok() {} };
    tokio::select! {
        // Data is polled first, so that a late byte still ends the silence.
        biased;
        _ended = both => {}
        () = silence => tracing::debug!("a connection to the model server was silent for too long"),
    }
}

async fn copy_one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    heard: &Notify,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = from.read(&mut chunk).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..count]).await?;
        to.flush().await?;
        heard.notify_one();
    }
}

/// The model server of a bridge, as a service of the network.
#[derive(Debug)]
pub(super) struct Models(pub(super) Arc<McpBridge>);

impl Service for Models {
    fn port(&self) -> u16 {
        self.0.models.as_ref().map_or(0, |models| models.port)
    }

    /// Admits workspaces that have a token. The token itself is not checked here, because model servers do not know it.
    fn admits(&self, guest: Ipv4Addr) -> bool {
        self.0.with_token_holder(guest, drop).is_some()
    }

    fn serve(&self, guest: Ipv4Addr, stream: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        let Some(models) = &self.0.models else { return Box::pin(std::future::ready(())) };
        let carried = self.0.with_token_holder(guest, |id| models.carry(id, stream));
        carried.unwrap_or_else(|| Box::pin(std::future::ready(())))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    /// The far ends of both sides, and the task that carries bytes between them.
    fn joined(max_silence: Duration) -> (DuplexStream, DuplexStream, JoinHandle<()>) {
        let ((program, guest), (server, host)) = (duplex(64), duplex(64));
        (program, server, tokio::spawn(relay(guest, host, max_silence)))
    }

    #[tokio::test]
    async fn half_closed_connection_still_receives_the_answer() {
        let (mut program, mut server, carried) = joined(MAX_SILENCE);
        program.write_all(b"why?").await.unwrap();
        program.shutdown().await.unwrap();
        let mut heard = String::new();
        server.read_to_string(&mut heard).await.unwrap();
        server.write_all(b"because").await.unwrap();
        drop(server);
        let mut answer = String::new();
        program.read_to_string(&mut answer).await.unwrap();
        assert_eq!((heard.as_str(), answer.as_str()), ("why?", "because"));
        carried.await.unwrap();
    }

    #[tokio::test]
    async fn silent_model_connection_is_closed() {
        let (mut program, _server, carried) = joined(Duration::from_millis(20));
        carried.await.unwrap();
        assert_eq!(program.read(&mut [0]).await.unwrap(), 0);
    }
}
