//! A port of the machine's loopback whose connections the host serves.
//!
//! ```text
//!  program ── 127.0.0.1:port ── Listen tells of it ── waiting ── Carry takes it ── host
//! ```
//!
//! Nothing is understood here: bytes go both ways, and the host is told whether the program read to the end.

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

/// How long the host may take to fetch a connection it was told of.
const FETCH_DEADLINE: Duration = Duration::from_secs(10);

/// Until a listener that failed is asked again: it does while the machine has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection with its place among those that may be open.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    since: Instant,
    _place: OwnedSemaphorePermit,
}

/// Connections that the host was told of and has not fetched yet.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    connections: Mutex<BTreeMap<u64, Connection>>,
    /// The number given last. A host that listens again must not fetch a connection under the number of another, which it
    /// was told of before.
    last: AtomicU64,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Connection>> {
        // Every change is one insert or remove.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the connection.
    fn add(&self, connection: Connection) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.lock().insert(number, connection);
        number
    }

    pub(crate) fn fetch(&self, connection: u64) -> Option<Connection> {
        self.lock().remove(&connection)
    }

    /// Hangs up on those that the host did not want. True if none is left.
    fn forget_old(&self) -> bool {
        let mut waiting = self.lock();
        waiting.retain(|_, connection| connection.since.elapsed() < FETCH_DEADLINE);
        waiting.is_empty()
    }
}

/// Programs in this machine alone reach it.
pub(crate) async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}

/// Accepts connections and tells the host of them, until it is dropped. What was not fetched by then is closed.
pub(crate) async fn accept(
    listener: TcpListener,
    waiting: Arc<Waiting>,
    sink: mpsc::Sender<Result<v1::Accepted, Status>>,
) {
    let _closed = CloseAll(Arc::clone(&waiting));
    let places = Arc::new(Semaphore::new(limits::MAX_LOCAL_CONNECTIONS));
    while let Ok((stream, place)) = next(&listener, &places, &waiting).await {
        let number = waiting.add(Connection { stream, since: Instant::now(), _place: place });
        if sink.send(Ok(v1::Accepted { connection: number, uptime_secs: uptime() })).await.is_err() {
            return;
        }
    }
}

/// The next connection, once there is a place for it. Wakes up by itself only while one may have to be given up.
async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    waiting: &Waiting,
) -> Result<(TcpStream, OwnedSemaphorePermit), tokio::sync::AcquireError> {
    loop {
        let accepted = async {
            let place = Arc::clone(places).acquire_owned().await?;
            Ok(listener.accept().await.map(|(stream, _)| (stream, place)))
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

/// Hangs up on whoever waits when nobody listens any more.
struct CloseAll(Arc<Waiting>);

impl Drop for CloseAll {
    fn drop(&mut self) {
        self.0.lock().clear();
    }
}

/// How long the machine has been running, the time in which it stood still included.
fn uptime() -> u64 {
    u64::try_from(rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_two_connections_have_the_same_number_however_often_the_host_listens() {
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
