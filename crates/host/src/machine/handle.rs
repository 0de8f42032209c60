//! The handle to a running machine, and the task that watches it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentiso_core::ids::WorkspaceId;
use thiserror::Error;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::exit::ExitReason;
use super::link::AgentLink;
use super::logs;
use super::recorder::Recorder;
use crate::agent::{AgentClient, AgentError};
use crate::files;
use crate::process::{MachineRecord, Process};
use crate::qmp::{Event, QmpClient, QmpError, ShutdownCause};

/// QEMU closes its control socket as it exits; what it announced has then been read.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Asked to quit, QEMU flushes its disk and exits.
const QUIT_DEADLINE: Duration = Duration::from_secs(5);

/// The part of the grace that the guest's processes get; the rest is for the guest to unmount and QEMU to exit.
const PROCESSES_SHARE: u32 = 2;

#[derive(Debug, Error)]
#[error("the memory use of process {pid} cannot be read: {source}")]
pub struct PssError {
    pid: i32,
    source: io::Error,
}

/// What a machine is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) id: WorkspaceId,
    pub(crate) process: Process,
    pub(crate) qmp: QmpClient,
    /// Subscribed before the guest ran, so that no announcement is missed.
    pub(crate) events: broadcast::Receiver<Event>,
    pub(crate) agent: Option<AgentClient>,
    pub(crate) agent_socket: PathBuf,
    pub(crate) run_dir: PathBuf,
    pub(crate) recorder: Recorder,
    /// Logs that QEMU writes itself, because an older agentiso started it.
    pub(crate) unrecorded: Vec<PathBuf>,
    pub(crate) console_log: PathBuf,
    pub(crate) stderr_log: PathBuf,
}

/// A running machine. Clones share it; dropping the last one lets QEMU run on, unwatched.
#[derive(Clone, Debug)]
pub struct Machine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: WorkspaceId,
    process: Process,
    qmp: QmpClient,
    agent: AgentLink,
    /// Whether we sent the signal that ends it.
    killed: Arc<AtomicBool>,
    exit: watch::Receiver<Option<ExitReason>>,
    stall: Arc<watch::Sender<Option<Stall>>>,
    _watcher: AbortOnDropHandle<()>,
}

impl Machine {
    pub(crate) fn new(parts: Parts) -> Self {
        let (sender, exit) = watch::channel(None);
        let stall = Arc::new(watch::Sender::new(None));
        let killed = Arc::new(AtomicBool::new(false));
        let watcher = Watcher {
            stall: Arc::clone(&stall),
            killed: Arc::clone(&killed),
            process: parts.process.clone(),
            qmp: parts.qmp.clone(),
            events: parts.events,
            run_dir: parts.run_dir,
            recorder: parts.recorder,
            unrecorded: parts.unrecorded,
            console_log: parts.console_log,
            stderr_log: parts.stderr_log,
        };
        let id = parts.id;
        let watching = tokio::spawn(async move {
            let reason = watcher.run().await;
            tracing::info!(workspace = %id, %reason, "the machine ended");
            sender.send_replace(Some(reason));
        });
        Self {
            inner: Arc::new(Inner {
                id,
                process: parts.process,
                qmp: parts.qmp,
                agent: AgentLink::new(parts.agent_socket, parts.agent),
                killed,
                exit,
                stall,
                _watcher: AbortOnDropHandle::new(watching),
            }),
        }
    }

    pub fn id(&self) -> WorkspaceId {
        self.inner.id
    }

    pub fn record(&self) -> &MachineRecord {
        self.inner.process.record()
    }

    /// The agent's client. If the connection broke, a fresh one; if the machine ended meanwhile, an error at once.
    pub async fn agent(&self) -> Result<AgentClient, AgentError> {
        tokio::select! {
            // A connection that is there is worth more than the news that the machine just ended.
            biased;
            client = self.inner.agent.client() => client,
            _ = self.exited() => Err(AgentError::Disconnected { call: "connect" }),
        }
    }

    /// Resolves when QEMU has ended, with the reason. Any number of callers may wait.
    pub async fn exited(&self) -> ExitReason {
        let mut exit = self.inner.exit.clone();
        loop {
            if let Some(reason) = exit.borrow_and_update().clone() {
                return reason;
            }
            if exit.changed().await.is_err() {
                // The watcher lives as long as the machine; without it the runtime is ending.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Resolves when the guest stands still against its will, with the reason. It loses nothing and goes on after
    /// [`Machine::wake`]; if what it writes still finds no room, it stops again.
    pub async fn stalled(&self) -> String {
        let mut stalled = self.inner.stall.subscribe();
        loop {
            if let Some(stall) = stalled.borrow_and_update().as_ref() {
                return stall.to_string();
            }
            if stalled.changed().await.is_err() {
                // Ended, which others are told of.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Lets a guest that we stopped go on, with the time that it is now. If that fails, it is stalled.
    pub async fn resume(&self) -> Result<(), QmpError> {
        let resumed = self.inner.qmp.resume().await;
        self.going_on(resumed).await
    }

    /// The same for one that may stand still for any reason, or be in the middle of a copy that nobody waits for. One that
    /// runs is left alone.
    pub async fn wake(&self) -> Result<(), QmpError> {
        let woken = self.inner.qmp.wake().await;
        self.going_on(woken).await
    }

    async fn going_on(&self, resumed: Result<(), QmpError>) -> Result<(), QmpError> {
        match &resumed {
            Ok(()) => {
                // A machine that went on by itself has told so before this was noted. Why it stopped by itself since
                // then must stay.
                self.inner
                    .stall
                    .send_if_modified(|stall| stall.take_if(|stall| *stall == Stall::Silent).is_some());
                self.catch_up().await;
            }
            // Others are told of its end.
            Err(QmpError::Closed) => {}
            Err(_) => {
                self.inner.stall.send_if_modified(|stall| {
                    let unknown = stall.is_none();
                    stall.get_or_insert(Stall::Silent);
                    unknown
                });
            }
        }
        resumed
    }

    /// The guest's clock stood still with it.
    pub(crate) async fn catch_up(&self) {
        /// One that stands still again does not answer.
        const DEADLINE: Duration = Duration::from_secs(5);
        let caught_up = async { self.agent().await?.catch_up().await };
        match timeout(DEADLINE, caught_up).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(workspace = %self.inner.id, %error, "its clock may be behind"),
            Err(_elapsed) => tracing::warn!(workspace = %self.inner.id, "its clock may be behind"),
        }
    }

    /// The reason, if the machine has ended already.
    pub fn exit_reason(&self) -> Option<ExitReason> {
        self.inner.exit.borrow().clone()
    }

    /// Ends the machine in order, and by force when the order takes longer than `grace`: the agent ends the
    /// guest's processes and unmounts; QEMU is told to quit; QEMU is killed.
    pub async fn shutdown(&self, grace: Duration) -> ExitReason {
        let deadline = Instant::now() + grace;
        let by_agent = async {
            match self.agent().await {
                Ok(agent) => {
                    if let Err(error) = agent.shutdown(grace / PROCESSES_SHARE).await {
                        tracing::debug!(workspace = %self.inner.id, %error, "the agent did not confirm the shutdown");
                    }
                }
                Err(error) => {
                    tracing::warn!(workspace = %self.inner.id, %error, "the agent cannot be asked to shut down");
                    return std::future::pending().await;
                }
            }
            // The guest waits for the answer to be read before it goes off.
            self.inner.agent.release();
            self.exited().await
        };
        if let Ok(reason) = tokio::time::timeout_at(deadline, by_agent).await {
            return reason;
        }
        tracing::warn!(workspace = %self.inner.id, "the guest did not shut down in time; telling QEMU to quit");
        let quit = async {
            // Whether or not it is answered, the exit is what counts.
            let _ = self.inner.qmp.execute("quit", None).await;
            self.exited().await
        };
        match timeout(QUIT_DEADLINE, quit).await {
            Ok(reason) => reason,
            Err(_elapsed) => self.kill().await,
        }
    }

    /// Ends the machine at once, as pulling the plug does.
    pub async fn kill(&self) -> ExitReason {
        self.inner.killed.store(true, Ordering::Release);
        self.inner.process.kill();
        self.exited().await
    }

    /// The host memory this machine accounts for: its own pages, and its share of those it shares.
    pub fn memory_pss(&self) -> Result<u64, PssError> {
        let pid = self.inner.process.pid();
        let read = || {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            parse_pss(&text).ok_or(io::Error::from(io::ErrorKind::InvalidData))
        };
        read().map_err(|source| PssError { pid, source })
    }

    /// QEMU's control socket, for what later layers need.
    pub fn qmp(&self) -> &QmpClient {
        &self.inner.qmp
    }
}

/// Why a guest stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stall {
    /// What it writes finds no room.
    NoRoom(String),
    /// We stopped it, or may have, and QEMU did not confirm that it goes on.
    Silent,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom(reason) => f.write_str(reason),
            Self::Silent => {
                f.write_str("QEMU stopped it and does not answer; this is tried again until it does")
            }
        }
    }
}

fn parse_pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The task that notices the end, and keeps the logs in bounds until then.
struct Watcher {
    /// Why the guest stands still, if it does.
    stall: Arc<watch::Sender<Option<Stall>>>,
    killed: Arc<AtomicBool>,
    process: Process,
    qmp: QmpClient,
    events: broadcast::Receiver<Event>,
    run_dir: PathBuf,
    recorder: Recorder,
    unrecorded: Vec<PathBuf>,
    console_log: PathBuf,
    stderr_log: PathBuf,
}

impl Watcher {
    async fn run(mut self) -> ExitReason {
        let mut announced = None;
        let mut events_open = true;
        let mut tick = tokio::time::interval(logs::CHECK_INTERVAL);
        let exit = loop {
            tokio::select! {
                // The end first: nothing else matters once it is known.
                biased;
                exit = self.process.wait() => break exit,
                event = self.events.recv(), if events_open => match event {
                    Ok(event) => {
                        announced = event.shutdown_cause().or(announced);
                        if let Some(stall) = event.stall() {
                            self.stall.send_replace(stall.map(Stall::NoRoom));
                        }
                        if event.is_growth() {
                            self.hold().await;
                        }
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => events_open = false,
                },
                _ = tick.tick() => {
                    self.unrecorded.iter().for_each(|log| bound(log));
                }
            }
        };
        let _ = timeout(LAST_WORDS, self.qmp.closed()).await;
        self.recorder.drained().await;
        announced = last_announcement(&mut self.events, announced);
        if let Err(error) = files::remove_dir(&self.run_dir) {
            tracing::warn!(%error, "the sockets of a machine that ended were not removed");
        }
        let reason = ExitReason::of(exit, announced, &self.console_log, &self.stderr_log);
        if self.killed.load(Ordering::Acquire) { reason.killed_by_us() } else { reason }
    }
}

impl Watcher {
    /// Stops a guest that has used up its disk, before it writes more.
    async fn hold(&self) {
        match self.qmp.execute("stop", None).await {
            Err(QmpError::Closed) => {}
            stopped => {
                if let Err(error) = stopped {
                    // It may be carried out later than it was waited for.
                    tracing::warn!(%error, "it is not known whether a guest that has used up its disk was stopped");
                }
                let reason = "it has used up its disk, snapshots included".to_owned();
                self.stall.send_replace(Some(Stall::NoRoom(reason)));
            }
        }
    }
}

fn last_announcement(
    events: &mut broadcast::Receiver<Event>,
    mut announced: Option<ShutdownCause>,
) -> Option<ShutdownCause> {
    loop {
        match events.try_recv() {
            Ok(event) => announced = event.shutdown_cause().or(announced),
            Err(broadcast::error::TryRecvError::Lagged(_)) => {}
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => {
                return announced;
            }
        }
    }
}

fn bound(log: &Path) {
    if let Err(error) = logs::bound(log) {
        tracing::warn!(log = %log.display(), %error, "a log could not be kept in bounds");
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::UnixStream;

    use super::*;
    use crate::process::{Launch, Priority};

    /// A QEMU whose machine was stopped for a copy. It does not let it go on for the first times.
    async fn stopped_qemu(mut refusals: u32) -> QmpClient {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let (reading, mut writing) = theirs.into_split();
            let mut lines = BufReader::new(reading).lines();
            let mut running = false;
            writing.write_all(b"{\"QMP\":{}}\n").await.unwrap();
            while let Ok(Some(line)) = lines.next_line().await {
                let asked: Value = serde_json::from_str(&line).unwrap();
                let mut said = match asked["execute"].as_str().unwrap() {
                    "query-status" => json!({"return": {"running": running, "status": "postmigrate"}}),
                    "query-fdsets" => json!({"return": []}),
                    "cont" if refusals > 0 => {
                        refusals -= 1;
                        json!({"error": {"class": "GenericError", "desc": "busy"}})
                    }
                    "cont" => {
                        running = true;
                        writing.write_all(b"{\"event\":\"RESUME\"}\n").await.unwrap();
                        json!({"return": {}})
                    }
                    _ => json!({"return": {}}),
                };
                said["id"] = asked["id"].clone();
                writing.write_all(format!("{said}\n").as_bytes()).await.unwrap();
            }
        });
        QmpClient::over(ours).await.unwrap()
    }

    #[tokio::test]
    async fn machine_left_stopped_is_stalled_until_woken() {
        let dir = tempfile::tempdir().unwrap();
        let launch = Launch {
            program: "/bin/sleep".into(),
            arguments: vec!["1000".into()],
            log: dir.path().join("log"),
            inherited: Vec::new(),
            priority: Priority::Ordinary,
            group: None,
            cell: crate::jail::Cell::open(),
        };
        let qmp = stopped_qemu(2).await;
        let machine = Machine::new(Parts {
            id: WorkspaceId::random(),
            process: launch.spawn().unwrap(),
            events: qmp.events(),
            qmp,
            agent: None,
            agent_socket: dir.path().join("agent.sock"),
            run_dir: dir.path().join("run"),
            recorder: Recorder::deaf(),
            unrecorded: Vec::new(),
            console_log: dir.path().join("console.log"),
            stderr_log: dir.path().join("stderr.log"),
        });
        assert!(machine.stalled().now_or_never().is_none());
        // The end of a snapshot, and an attempt to mend that.
        assert!(machine.resume().await.is_err());
        assert!(machine.wake().await.is_err());
        let reason = machine.stalled().now_or_never().expect("whoever waits is told");
        assert!(reason.contains("tried again"), "{reason}");
        machine.wake().await.unwrap();
        assert_eq!(machine.stalled().now_or_never(), None);
        // One that went on by itself, which was heard before the failure was noted.
        machine.going_on(Err(QmpError::NoAnswer { command: "cont".to_owned() })).await.unwrap_err();
        assert!(machine.stalled().now_or_never().is_some());
        machine.wake().await.unwrap();
        assert_eq!(machine.stalled().now_or_never(), None);
        machine.kill().await;
    }

    #[test]
    fn the_proportional_share_is_read_from_the_rollup() {
        assert_eq!(
            parse_pss("00 ---p [rollup]\nRss: 9 kB\nPss:    1024 kB\nPss_Dirty: 1 kB\n"),
            Some(1 << 20)
        );
        assert_eq!(parse_pss("Rss: 9 kB"), None);
    }
}
