//! A model server of the host, for workspaces that have a token of the bridge.
//!
//! It listens on the host's loopback; what comes to the same port of the gateway is carried there, and nothing else of
//! the host can be reached in this way. Requests are the model server's to understand.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use agentiso_net::gateway::{Duplex, Service};
use futures::future::{BoxFuture, try_join};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::McpBridge;

/// Connections of one workspace at once, as at the bridge itself.
const MAX_CONNECTIONS: usize = 16;

/// Whoever listens on this host answers at once.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);

/// A model that is being loaded, or thinks, says nothing for minutes; a program that has forgotten its connection never
/// does, and keeps a place.
const MAX_SILENCE: Duration = Duration::from_secs(30 * 60);

/// Read at once.
const PART: usize = 16 * 1024;

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

    /// Only enters the connection; the rest is up to whoever awaits what it returns.
    fn carry(&self, id: WorkspaceId, guest: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        let mut all = self.lines();
        let fresh =
            || Lines { places: Arc::new(Semaphore::new(MAX_CONNECTIONS)), ended: CancellationToken::new() };
        let lines = all.entry(id).or_insert_with(fresh);
        let (place, ended) = (lines.places.clone().try_acquire_owned(), lines.ended.clone());
        drop(all);
        let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port);
        Box::pin(async move {
            let Ok(_place) = place else { return };
            match timeout(CONNECT_DEADLINE, TcpStream::connect(server)).await {
                Ok(Ok(host)) => drop(ended.run_until_cancelled(join(guest, host, MAX_SILENCE)).await),
                Ok(Err(error)) => tracing::debug!(%server, %error, "the model server cannot be reached"),
                Err(_elapsed) => tracing::debug!(%server, "the model server does not answer"),
            }
        })
    }
}

/// Carries bytes both ways until both sides have ended, one fails, or neither has said anything for long. How it ended is
/// told to both by its end.
async fn join(guest: impl AsyncRead + AsyncWrite, host: impl AsyncRead + AsyncWrite, max_silence: Duration) {
    let ((from_guest, to_guest), (from_host, to_host)) = (split(guest), split(host));
    let heard = Notify::new();
    let both = try_join(pass(from_guest, to_host, &heard), pass(from_host, to_guest, &heard));
    let silence = async { while timeout(max_silence, heard.notified()).await.is_ok() {} };
    tokio::select! {
        // What is still said ends the silence.
        biased;
        _ended = both => {}
        () = silence => tracing::debug!("a connection to the model server was silent for too long"),
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    heard: &Notify,
) -> io::Result<()> {
    let mut part = vec![0; PART];
    loop {
        let count = from.read(&mut part).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&part[..count]).await?;
        to.flush().await?;
        heard.notify_one();
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
        self.0.enter_holder(guest, drop).is_some()
    }

    fn serve(&self, guest: Ipv4Addr, stream: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        let Some(models) = &self.0.models else { return Box::pin(std::future::ready(())) };
        let carried = self.0.enter_holder(guest, |id| models.carry(id, stream));
        carried.unwrap_or_else(|| Box::pin(std::future::ready(())))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    /// The far ends of both sides, and what carries between them.
    fn joined(max_silence: Duration) -> (DuplexStream, DuplexStream, JoinHandle<()>) {
        let ((program, guest), (server, host)) = (duplex(64), duplex(64));
        (program, server, tokio::spawn(join(guest, host, max_silence)))
    }

    #[tokio::test]
    async fn a_side_that_has_said_everything_still_hears_the_answer() {
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
    async fn a_connection_ends_when_neither_side_says_anything_for_long() {
        let (mut program, _server, carried) = joined(Duration::from_millis(20));
        carried.await.unwrap();
        assert_eq!(program.read(&mut [0]).await.unwrap(), 0);
    }
}
