//! Connects to the daemon, or starts one that outlives this process and waits until it listens.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use agentiso_core::config::Paths;
use agentiso_sys::process::detach;
use rustix::fs::inotify;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::time::{Instant, timeout_at};

use super::hello::{self, HELLO_DEADLINE, Hello, HelloError, Welcome};
use super::ready::{self, ReadyReport};
use crate::found_daemon::{FoundDaemon, find_daemon};
use crate::lock::running_daemon;
use crate::own_log;
use crate::run_dir::{self, Owner, share_directory};

/// Time from starting a daemon to its socket. The daemon answers before it has looked at VMs, so only a heavily loaded
/// host needs this long.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// The pause before the next attempt to start a daemon, while another one is starting or ending.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Bytes of the reason, one line; more is cut.
const MAX_REPORT_BYTES: u64 = 4096;

/// The command that starts a daemon: `agentiso daemon` with the right configuration.
#[derive(Clone, Debug)]
pub struct DaemonCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// A connection whose greeting is done.
#[derive(Debug)]
pub struct Connected {
    pub stream: UnixStream,
    pub welcome: Welcome,
}

#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("no daemon is listening at {path}")]
    NotRunning { path: PathBuf },
    #[error("cannot use the daemon's socket {path}: {source}")]
    Socket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error("the daemon refused the connection: {reason}")]
    Refused { reason: String },
    #[error(
        "the daemon at {path} (pid {pid}) serves {}, not {ours}: {}",
        serving(.theirs), mistake(.theirs, .ours)
    )]
    OtherState { path: PathBuf, pid: u32, theirs: Option<String>, ours: String },
    #[error("cannot start the daemon: cannot {what}: {source}")]
    Prepare {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("the daemon did not start: {reason}")]
    StartFailed { reason: String },
    #[error("the daemon was not ready within {} s; its log is {log}", START_DEADLINE.as_secs())]
    StartTimedOut { log: PathBuf },
}

fn serving(state_file: &Option<String>) -> &str {
    state_file.as_deref().unwrap_or("another state file")
}

fn mistake(theirs: &Option<String>, ours: &str) -> &'static str {
    match theirs {
        Some(theirs) if share_directory(theirs, ours) => "server.state_file was changed while it ran",
        Some(_) | None => "two configurations share one vm.run_dir",
    }
}

/// Connects to a running daemon that serves our state file.
pub async fn connect(paths: &Paths, hello: &Hello) -> Result<Connected, ConnectError> {
    let path = paths.daemon_socket();
    let greeted = greet(&path, hello).await;
    let nothing_listens = match &greeted {
        Err(ConnectError::Socket { source, .. }) => is_not_listening(source),
        // The daemon ended before it answered.
        Err(ConnectError::Hello(HelloError::Ended)) => true,
        Err(ConnectError::Hello(HelloError::Io(source))) => is_not_listening(source),
        Ok(_) | Err(_) => false,
    };
    if nothing_listens {
        return Err(ConnectError::NotRunning { path });
    }
    let connected = greeted?;
    check_state(paths, &connected.welcome, path)?;
    Ok(connected)
}

/// Refuses a daemon of another ledger than the one that this configuration names, so that nothing is created there.
fn check_state(paths: &Paths, welcome: &Welcome, path: PathBuf) -> Result<(), ConnectError> {
    let ours = run_dir::identity(&paths.state_file);
    let same = match &welcome.state_file {
        Some(theirs) => *theirs == ours,
        // A daemon of an earlier version does not say it: it is ours if it holds the lock beside our state file.
        None => running_daemon(&paths.lock_file()) == Some(welcome.pid),
    };
    let (pid, theirs) = (welcome.pid, welcome.state_file.clone());
    if same { Ok(()) } else { Err(ConnectError::OtherState { path, pid, theirs, ours }) }
}

async fn greet(path: &Path, hello: &Hello) -> Result<Connected, ConnectError> {
    let opened = UnixStream::connect(path).await;
    let mut stream = opened.map_err(|source| ConnectError::Socket { path: path.into(), source })?;
    hello::write_line(&mut stream, hello).await.map_err(HelloError::Io)?;
    let line = tokio::time::timeout(HELLO_DEADLINE, hello::read_line(&mut stream));
    let line = line.await.map_err(|_| HelloError::TimedOut)??;
    let welcome: Welcome = serde_json::from_slice(&line).map_err(HelloError::Malformed)?;
    if !welcome.ok {
        return Err(ConnectError::Refused { reason: welcome.error.unwrap_or_default() });
    }
    Ok(Connected { stream, welcome })
}

/// Whether the error means that nothing listens on the socket, or not any more.
fn is_not_listening(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
    )
}

/// Connects, and starts a daemon first if none runs. If two processes start one at the same time, the daemon's lock
/// decides; both connect to the same daemon.
pub async fn connect_or_start(
    paths: &Paths,
    command: &DaemonCommand,
    hello: &Hello,
) -> Result<Connected, ConnectError> {
    match connect(paths, hello).await {
        Err(ConnectError::NotRunning { .. }) => {}
        settled => return settled,
    }
    let deadline = Instant::now() + START_DEADLINE;
    for directory in [&paths.data, &paths.run] {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|source| {
            ConnectError::Prepare { what: format!("create {}", directory.display()), source }
        })?;
    }
    let mut socket_watch = SocketWatch::watch(&paths.run)?;
    while Instant::now() < deadline {
        match start(paths, command, deadline).await? {
            ReadyReport::Ready => return connect(paths, hello).await,
            ReadyReport::Held => socket_watch.wait(RETRY_DELAY).await,
            ReadyReport::Failed(reason) => return Err(ConnectError::StartFailed { reason }),
        }
        match connect(paths, hello).await {
            // The daemon that held the lock is about to listen, or about to end.
            Err(ConnectError::NotRunning { .. }) => {}
            settled => return settled,
        }
    }
    let run = paths.run.display();
    match find_daemon(paths) {
        Some(FoundDaemon::Ours { pid }) => {
            let reason =
                format!("the daemon of this state file (pid {pid}) is running but not listening in {run}");
            Err(ConnectError::StartFailed { reason })
        }
        Some(FoundDaemon::Other { owner: Owner { pid, state_file }, .. }) => {
            let reason =
                format!("the daemon of {state_file} (pid {pid}) already uses this state directory or {run}");
            Err(ConnectError::StartFailed { reason })
        }
        None => Err(ConnectError::StartTimedOut { log: paths.daemon_log() }),
    }
}

#[expect(clippy::disallowed_methods, reason = "the daemon stays, where the programs of the funnel end")]
async fn start(
    paths: &Paths,
    command: &DaemonCommand,
    deadline: Instant,
) -> Result<ReadyReport, ConnectError> {
    let failed = |what: &str, source: io::Error| ConnectError::Prepare { what: what.to_owned(), source };
    let log_path = paths.daemon_log();
    let log = open_log(&log_path).map_err(|error| failed("open its log", error))?;
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| failed("create a pipe", error.into()))?;
    let mut daemon = Command::new(&command.program);
    daemon
        .args(&command.args)
        .env(ready::VARIABLE, ready::ON_STDIN)
        .current_dir("/")
        .stdin(Stdio::from(writer))
        .stdout(Stdio::from(log.try_clone().map_err(|error| failed("duplicate a file descriptor", error))?))
        .stderr(Stdio::from(log));
    // SAFETY: between fork and exec only system calls are made; the closure captures nothing and allocates nothing.
    unsafe { daemon.pre_exec(|| detach(&[])) };
    let mut child =
        daemon.spawn().map_err(|error| failed(&format!("run {}", command.program.display()), error))?;
    // `Command` keeps the writing end for further children; the pipe must close when the daemon closes its end.
    drop(daemon);
    let report = timeout_at(deadline, read_report(reader)).await;
    match report {
        Ok(Ok(Some(report))) => Ok(report),
        Ok(Ok(None)) => {
            let ended = timeout_at(deadline, child.wait()).await;
            let status =
                ended.ok().and_then(Result::ok).map(|status| format!(" ({status})")).unwrap_or_default();
            let reason = format!("it exited at once{status}; its log is {}", log_path.display());
            Err(ConnectError::StartFailed { reason })
        }
        Ok(Err(error)) => Err(failed("read its report", error)),
        Err(_elapsed) => Err(ConnectError::StartTimedOut { log: log_path }),
    }
}

fn open_log(path: &Path) -> io::Result<fs::File> {
    if fs::metadata(path).is_ok_and(|log| log.len() > own_log::MAX_LOG_BYTES) {
        fs::rename(path, own_log::older(path))?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

async fn read_report(reader: OwnedFd) -> io::Result<Option<ReadyReport>> {
    let reader = pipe::Receiver::from_owned_fd(reader)?;
    let mut line = String::new();
    BufReader::new(reader.take(MAX_REPORT_BYTES)).read_line(&mut line).await?;
    Ok(ReadyReport::parse(&line))
}

/// Waits for the socket of a daemon that another process is starting: it is renamed into place when it listens.
struct SocketWatch {
    inotify: pipe::Receiver,
}

impl SocketWatch {
    /// Starts watching, so that nothing is missed before the first look.
    fn watch(directory: &Path) -> Result<Self, ConnectError> {
        let watch = || -> io::Result<_> {
            let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
            inotify::add_watch(&inotify, directory, inotify::WatchFlags::MOVED_TO)?;
            // Not a pipe, but like a pipe it is read with read(2) and becomes readable when there is an event.
            pipe::Receiver::from_owned_fd_unchecked(inotify)
        };
        let what = || format!("watch {}", directory.display());
        Ok(Self { inotify: watch().map_err(|source| ConnectError::Prepare { what: what(), source })? })
    }

    /// Returns when a file appears, or after this time. Any file will do, because the next attempt to connect shows
    /// whether the daemon listens.
    async fn wait(&mut self, at_most: Duration) {
        let mut events = [0; 4096];
        let _ = tokio::time::timeout(at_most, self.inotify.read(&mut events)).await;
    }
}
