//! Forwards: ports of the host's loopback that lead into a guest.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::limits::FORWARDS;

/// Smallest host port. Ports below it belong to the system.
const LEAST_PORT: u16 = 1024;

/// Pause after a failed accept: too many open files, most likely.
const PAUSE: Duration = Duration::from_millis(100);

/// The log message for a connection to a workspace without a running VM.
pub(crate) const NOT_RUNNING: &str = "the workspace is not running";

/// A port of the host's loopback that leads into a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    pub guest_port: u16,
    pub host_port: u16,
}

#[derive(Debug, Error)]
pub enum ForwardError {
    #[error("0 is not a valid guest port")]
    NoPort,
    #[error("host port {port} is reserved for the system; use {LEAST_PORT} or higher")]
    Privileged { port: u16 },
    #[error("host port {port} is in use")]
    InUse { port: u16 },
    #[error("guest port {guest_port} is already forwarded from host port {host_port}")]
    Exists { guest_port: u16, host_port: u16 },
    #[error("guest port {guest_port} is not forwarded")]
    Unknown { guest_port: u16 },
    #[error("a VM has at most {FORWARDS} forwards")]
    TooMany,
    #[error("cannot listen on the host's loopback: {source}")]
    Listen { source: io::Error },
}

/// A removed forward, whose listener may take a moment to close.
#[derive(Debug)]
pub struct Ending(JoinHandle<Option<()>>);

impl Ending {
    /// Returns when its port is free.
    pub async fn ended(self) {
        // An error means that the task failed, which closes the listener as well.
        let _ = self.0.await;
    }
}

/// The forwards of one VM, by guest port.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    running: Mutex<BTreeMap<u16, Running>>,
}

#[derive(Debug)]
struct Running {
    host_port: u16,
    /// Ends the listener and its connections.
    stop: DropGuard,
    accepting: JoinHandle<Option<()>>,
}

/// A VM that forwards lead to.
pub(crate) trait Inbound: Send + Sync + 'static {
    fn tasks(&self) -> &TaskTracker;

    fn ended(&self) -> &CancellationToken;

    /// Carries a connection from the host into the guest, until `stop`. If that is not possible, it is reset.
    fn open_inbound(
        self: &Arc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        guest_port: u16,
        stop: &CancellationToken,
    );
}

impl Forwards {
    /// Starts a forward. Host ports in `avoid` are not taken, because they belong to others. Must be called within the
    /// runtime.
    pub(crate) fn add<T: Inbound>(
        &self,
        vm: &Arc<T>,
        guest_port: u16,
        host_port: Option<u16>,
        avoid: &BTreeSet<u16>,
    ) -> Result<Forward, ForwardError> {
        match (guest_port, host_port) {
            (0, _) => return Err(ForwardError::NoPort),
            (_, Some(port)) if port < LEAST_PORT => return Err(ForwardError::Privileged { port }),
            (_, Some(_) | None) => {}
        }
        let mut running = self.running();
        if let Some(Running { host_port, .. }) = running.get(&guest_port) {
            return Err(ForwardError::Exists { guest_port, host_port: *host_port });
        }
        if running.len() >= FORWARDS {
            return Err(ForwardError::TooMany);
        }
        let (listener, host_port) = match host_port {
            Some(port) if avoid.contains(&port) => return Err(ForwardError::InUse { port }),
            Some(port) => listen(port)?,
            None => listen_anywhere(avoid)?,
        };
        let stop = vm.ended().child_token();
        let accepting = accept(vm.clone(), listener, guest_port, stop.clone());
        let accepting = vm.tasks().spawn(stop.clone().run_until_cancelled_owned(accepting));
        running.insert(guest_port, Running { host_port, stop: stop.drop_guard(), accepting });
        Ok(Forward { guest_port, host_port })
    }

    /// Stops a forward. The port is free when the returned [`Ending`] completes.
    pub(crate) fn remove(&self, guest_port: u16) -> Result<Ending, ForwardError> {
        let removed = self.running().remove(&guest_port);
        let Running { stop, accepting, .. } = removed.ok_or(ForwardError::Unknown { guest_port })?;
        drop(stop);
        Ok(Ending(accepting))
    }

    pub(crate) fn list(&self) -> Vec<Forward> {
        let running = self.running();
        let forward = |(guest_port, running): (&u16, &Running)| Forward {
            guest_port: *guest_port,
            host_port: running.host_port,
        };
        running.iter().map(forward).collect()
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u16, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens on a free port that is not in `avoid`. Listeners on unsuitable ports are held until one is found, so that no
/// port comes twice.
fn listen_anywhere(avoid: &BTreeSet<u16>) -> Result<(TcpListener, u16), ForwardError> {
    let mut passed_over = Vec::new();
    for _ in 0..=avoid.len() {
        let (listener, port) = listen(0)?;
        if !avoid.contains(&port) {
            return Ok((listener, port));
        }
        passed_over.push(listener);
    }
    Err(ForwardError::Listen { source: io::ErrorKind::AddrInUse.into() })
}

/// Listens on a port; 0 takes a free one.
fn listen(port: u16) -> Result<(TcpListener, u16), ForwardError> {
    let failed = |source: io::Error| match source.kind() == io::ErrorKind::AddrInUse && port != 0 {
        true => ForwardError::InUse { port },
        false => ForwardError::Listen { source },
    };
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let host_port = listener.local_addr().map_err(failed)?.port();
    Ok((TcpListener::from_std(listener).map_err(failed)?, host_port))
}

async fn accept<T: Inbound>(vm: Arc<T>, listener: TcpListener, guest_port: u16, stop: CancellationToken) {
    loop {
        match listener.accept().await {
            Ok((stream, client)) => vm.open_inbound(stream, client, guest_port, &stop),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a forwarded connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
