//! The QMP connection to one QEMU.
//!
//! Two tasks own the socket's halves and end with the last handle. Commands pass through them, so a caller that stops
//! waiting leaves no half-written line behind. When QEMU closes the connection, all pending commands fail.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentiso_sys::files::FileError;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::wire::{self, Answer, Event, Incoming, Refusal};

/// Answers of the commands we use have a few KiB; this only keeps a broken peer from filling our memory.
const MAX_LINE: u64 = 4 << 20;

/// Commands in progress at once. We send one at a time; the rest is room for a shutdown that is sent meanwhile.
const QUEUE: usize = 16;

/// A boot and a migration emit a dozen events; a receiver that lags behind this many asks QEMU for its state instead.
const EVENTS: usize = 256;

/// All commands we use are answered at once, which can mean seconds on a busy host with software emulation.
const COMMAND_DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, Error)]
pub enum QmpError {
    #[error("cannot connect to QEMU's control socket {path}: {source}")]
    Connect { path: String, source: io::Error },
    #[error("QEMU closed its control socket")]
    Closed,
    #[error("QEMU did not answer {command} within {} s", COMMAND_DEADLINE.as_secs())]
    NoAnswer { command: String },
    #[error("QEMU refused {command}: {refusal}")]
    Refused { command: String, refusal: Refusal },
    #[error("unexpected answer from QEMU to {command}")]
    Unexpected { command: String },
    #[error("cannot pass a file to QEMU: {0}")]
    File(#[from] FileError),
    #[error("a layer of the disk was not merged: {reason}")]
    Merge { reason: String },
    #[error("QEMU migration {status}: {reason}")]
    Migration { status: String, reason: String },
    #[error("the QEMU migration did not finish within {seconds} s")]
    MigrationDeadline { seconds: u64 },
    #[error(
        "the guest changes its memory faster than it can be copied, and pausing the guest for {seconds} s was not enough \
         to copy the rest"
    )]
    PauseLimit { seconds: u64 },
}

/// A command to be sent, and the descriptor that goes with it.
#[derive(Debug)]
struct Line {
    bytes: Vec<u8>,
    fd: Option<OwnedFd>,
}

type Waiting = HashMap<u64, oneshot::Sender<Answer>>;

/// `None` once QEMU has closed the connection, so that no caller waits for an answer that cannot come.
type Pending = Arc<Mutex<Option<Waiting>>>;

#[derive(Clone, Debug)]
pub struct QmpClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    outgoing: mpsc::Sender<Line>,
    pending: Pending,
    events: broadcast::Sender<Event>,
    next_id: AtomicU64,
    closed: CancellationToken,
    /// Aborts both tasks when the last handle is dropped.
    _tasks: JoinSet<()>,
}

impl QmpClient {
    /// Connects, awaits the greeting and opens the command mode.
    ///
    /// QEMU may have inherited the socket without serving it yet. The greeting then comes when it does, which is all
    /// the synchronisation that a start needs.
    pub async fn connect(path: &Path) -> Result<Self, QmpError> {
        let stream = UnixStream::connect(path)
            .await
            .map_err(|source| QmpError::Connect { path: path.display().to_string(), source })?;
        Self::over(stream).await
    }

    pub(crate) async fn over(stream: UnixStream) -> Result<Self, QmpError> {
        let (reading, writing) = stream.into_split();
        let (outgoing, queue) = mpsc::channel(QUEUE);
        let (events, _) = broadcast::channel(EVENTS);
        let pending: Pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let (greeted, greeting) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(write_lines(writing, queue));
        let closed = CancellationToken::new();
        let reader = read_lines(reading, pending.clone(), events.clone(), greeted);
        let on_close = closed.clone().drop_guard();
        tasks.spawn(async move {
            reader.await;
            drop(on_close);
        });
        let inner = Inner { outgoing, pending, events, next_id: AtomicU64::new(1), closed, _tasks: tasks };
        let client = Self { inner: Arc::new(inner) };
        match tokio::time::timeout(COMMAND_DEADLINE, greeting).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(QmpError::Closed),
            Err(_) => return Err(QmpError::NoAnswer { command: "the connection".to_owned() }),
        }
        client.execute("qmp_capabilities", None).await?;
        Ok(client)
    }

    /// QEMU's events from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// Resolves when QEMU has closed the connection.
    pub async fn closed(&self) {
        self.inner.closed.cancelled().await;
    }

    pub async fn execute(&self, command: &str, arguments: Option<Value>) -> Result<Value, QmpError> {
        self.execute_with(command, arguments, None).await
    }

    /// Runs a command that carries a descriptor.
    pub(super) async fn execute_with(
        &self,
        command: &str,
        arguments: Option<Value>,
        fd: Option<OwnedFd>,
    ) -> Result<Value, QmpError> {
        let work = self.answer(command, arguments, fd);
        match tokio::time::timeout(COMMAND_DEADLINE, work).await {
            Ok(Some(Ok(value))) => Ok(value),
            Ok(Some(Err(refusal))) => Err(QmpError::Refused { command: command.to_owned(), refusal }),
            Ok(None) => Err(QmpError::Closed),
            Err(_) => Err(QmpError::NoAnswer { command: command.to_owned() }),
        }
    }

    /// `None`: the connection is closed.
    async fn answer(&self, command: &str, arguments: Option<Value>, fd: Option<OwnedFd>) -> Option<Answer> {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        lock(&self.inner.pending).as_mut()?.insert(id, sender);
        // A caller that gives up must not leave its entry behind.
        let _entry = Forget { pending: &self.inner.pending, id };
        let line = Line { bytes: wire::command(id, command, arguments), fd };
        self.inner.outgoing.send(line).await.ok()?;
        receiver.await.ok()
    }
}

struct Forget<'a> {
    pending: &'a Pending,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = lock(self.pending).as_mut() {
            waiting.remove(&self.id);
        }
    }
}

fn lock(pending: &Pending) -> std::sync::MutexGuard<'_, Option<Waiting>> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn write_lines(mut socket: OwnedWriteHalf, mut queue: mpsc::Receiver<Line>) {
    while let Some(line) = queue.recv().await {
        // The reader notices the same end of the connection and fails all pending commands.
        if write_line(&mut socket, line).await.is_err() {
            return;
        }
    }
}

async fn write_line(socket: &mut OwnedWriteHalf, line: Line) -> io::Result<()> {
    let sent = match line.fd {
        None => 0,
        // The descriptor travels with the first bytes; the rest is sent like any other line.
        Some(fd) => {
            let stream: &UnixStream = socket.as_ref();
            stream.async_io(Interest::WRITABLE, || send_with(stream, &line.bytes, fd.as_fd())).await?
        }
    };
    socket.write_all(&line.bytes[sent..]).await
}

fn send_with(socket: impl AsFd, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<usize> {
    let fds = [fd];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&fds));
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)?)
}

async fn read_lines(
    socket: OwnedReadHalf,
    pending: Pending,
    events: broadcast::Sender<Event>,
    greeted: oneshot::Sender<()>,
) {
    let mut lines = BufReader::new(socket);
    let mut greeted = Some(greeted);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) if line.last() != Some(&b'\n') => {
                tracing::warn!(
                    bytes = line.len(),
                    "QEMU's control socket sent an incomplete or too long line"
                );
                break;
            }
            Ok(_) => {}
        }
        match wire::parse(&line) {
            Ok(Incoming::Greeting) => {
                if let Some(greeted) = greeted.take() {
                    let _ = greeted.send(());
                }
            }
            Ok(Incoming::Answer { id, answer }) => {
                let waiting = lock(&pending).as_mut().and_then(|waiting| waiting.remove(&id));
                if let Some(waiting) = waiting {
                    let _ = waiting.send(answer);
                }
            }
            Ok(Incoming::Event(event)) => {
                tracing::trace!(name = event.name, "QEMU event");
                let _ = events.send(event);
            }
            Ok(Incoming::Ignored) => {}
            Err(error) => {
                tracing::warn!(%error, "QEMU's control socket sent a line that is not QMP");
                break;
            }
        }
    }
    // Dropping the senders fails all pending commands.
    lock(&pending).take();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A QEMU that greets, accepts the capabilities, and then follows the script: the lines it writes for each line it
    /// reads.
    async fn fake(script: Vec<&'static str>) -> QmpClient {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let (reading, mut writing) = theirs.into_split();
            let mut lines = BufReader::new(reading).lines();
            writing.write_all(b"{\"QMP\":{}}\n").await.unwrap();
            lines.next_line().await.unwrap();
            writing.write_all(b"{\"return\":{},\"id\":1}\n").await.unwrap();
            for answer in script {
                lines.next_line().await.unwrap();
                writing.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        QmpClient::over(ours).await.unwrap()
    }

    #[tokio::test]
    async fn answer_reaches_its_command_among_events() {
        let client = fake(vec![
            "{\"event\":\"NEW_KIND\",\"data\":{\"x\":1}}\n{\"return\":1,\"id\":99}\n{\"return\":{\"ok\":true},\"id\":2}\n",
        ])
        .await;
        let mut events = client.events();
        assert_eq!(client.execute("query-status", None).await.unwrap(), json!({"ok": true}));
        assert_eq!(events.recv().await.unwrap().name, "NEW_KIND");
    }

    #[tokio::test]
    async fn refusal_names_the_qmp_command() {
        let client = fake(vec!["{\"id\":2,\"error\":{\"class\":\"GenericError\",\"desc\":\"no\"}}\n"]).await;
        let error = client.execute("cont", None).await.unwrap_err();
        assert_eq!(error.to_string(), "QEMU refused cont: no (GenericError)");
    }

    #[tokio::test]
    async fn commands_fail_at_once_after_disconnect() {
        let client = fake(vec![""]).await;
        assert!(matches!(client.execute("stop", None).await, Err(QmpError::Closed)));
        assert!(matches!(client.execute("stop", None).await, Err(QmpError::Closed)));
    }

    #[tokio::test]
    async fn endless_line_closes_the_qmp_connection() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let flood = tokio::spawn(async move {
            let (_reading, mut writing) = theirs.into_split();
            let block = vec![b'x'; 1 << 16];
            while writing.write_all(&block).await.is_ok() {}
        });
        assert!(matches!(QmpClient::over(ours).await, Err(QmpError::Closed)));
        flood.await.unwrap();
    }
}
