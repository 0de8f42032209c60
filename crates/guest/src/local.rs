//! A port of the guest's loopback whose connections the host serves.
//!
//! ```text
//!  program ── 127.0.0.1:port ── Listen reports it ── waiting ── Carry fetches it ── host
//! ```
//!
//! The agent does not interpret the bytes. It carries them in both directions and tells the host whether the program
//! read to the end.

mod carry;

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;

pub(crate) use carry::carry;

/// The time that the host gets to fetch a reported connection.
const FETCH_DEADLINE: Duration = Duration::from_secs(10);

/// The pause after a failed accept. Accepting fails while the guest has no free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// An accepted connection, which counts towards the limit of open connections.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    since: Instant,
    _slot: OwnedSemaphorePermit,
}

/// Connections that were reported to the host and are not fetched yet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    connections: Mutex<BTreeMap<u64, Connection>>,
    /// The number given last. Numbers are not reused when the host listens again, so that it never fetches another
    /// connection than the one that was reported under the number.
    last: AtomicU64,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Connection>> {
        // A poisoned lock is fine: every change is a single insert or remove.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. Returns its number.
    fn add(&self, connection: Connection) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(number, connection);
        number
    }

    pub(crate) fn fetch(&self, connection: u64) -> Option<Connection> {
        self.lock().remove(&connection)
    }

    /// Closes connections that the host did not fetch in time. Returns true if none is left.
    fn forget_old(&self) -> bool {
        let mut waiting = self.lock();
        waiting.retain(|_, connection| connection.since.elapsed() < FETCH_DEADLINE);
        waiting.is_empty()
    }
}

/// Listens on the loopback, which only programs in this guest can reach.
pub(crate) async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}

/// Accepts connections and reports them to the host, until it is dropped. Connections that are not fetched by then are
/// closed.
pub(crate) async fn accept(
    listener: TcpListener,
    waiting: Arc<Waiting>,
    sink: mpsc::Sender<Result<v1::Accepted, Status>>,
) {
    let _closed = CloseAll(Arc::clone(&waiting));
    let slots = Arc::new(Semaphore::new(limits::MAX_LOCAL_CONNECTIONS));
    while let Ok((stream, slot)) = next(&listener, &slots, &waiting).await {
        let number = waiting.add(Connection { stream, since: Instant::now(), _slot: slot });
        if sink.send(Ok(v1::Accepted { connection: number, uptime_secs: uptime() })).await.is_err() {
            return;
        }
    }
}

/// The next connection, once the limit allows it. Wakes up by itself only while unfetched connections may time out.
async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    waiting: &Waiting,
) -> Result<(TcpStream, OwnedSemaphorePermit), tokio::sync::AcquireError> {
    loop {
        let accepted = async {
            let slot = Arc::clone(slots).acquire_owned().await?;
            Ok(listener.accept().await.map(|(stream, _)| (stream, slot)))
        };
        let accepted = match waiting.forget_old() {
            true => accepted.await,
            false => match timeout(FETCH_DEADLINE, accepted).await {
                Ok(accepted) => accepted,
                Err(_elapsed) => continue,
            },
        };
        match accepted? {
            Ok(accepted) => return Ok(accepted),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Closes all waiting connections when the listener ends.
struct CloseAll(Arc<Waiting>);

impl Drop for CloseAll {
    fn drop(&mut self) {
        self.0.lock().clear();
    }
}

/// The time that the VM has been running, including the time in which it was suspended.
fn uptime() -> u64 {
    u64::try_from(rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_numbers_are_unique_across_listens() {
        let waiting = Arc::new(Waiting::default());
        let mut numbers = Vec::new();
        for _ in 0..2 {
            let listener = bind(0).await.unwrap();
            let address = listener.local_addr().unwrap();
            let (sink, mut told) = mpsc::channel(1);
            let accepting = tokio::spawn(accept(listener, Arc::clone(&waiting), sink));
            let _program = TcpStream::connect(address).await.unwrap();
            numbers.push(told.recv().await.unwrap().unwrap().connection);
            accepting.abort();
            assert!(accepting.await.unwrap_err().is_cancelled());
        }
        assert_eq!(numbers, [1, 2]);
    }
}
