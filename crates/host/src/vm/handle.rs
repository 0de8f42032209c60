//! The handle to a running VM, and the task that watches it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentiso_agent::{AgentClient, AgentError};
use agentiso_core::ids::WorkspaceId;
use agentiso_sys::files;
use agentiso_sys::process::{Process, VmRecord};
use thiserror::Error;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::exit::ExitReason;
use super::link::AgentLink;
use super::logs;
use super::recorder::Recorder;
use crate::qmp::{Event, QmpClient, QmpError, ShutdownCause};

/// QEMU closes its control socket as it exits; its announcement has been read by then.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// When asked to quit, QEMU flushes its disk and exits.
const QUIT_DEADLINE: Duration = Duration::from_secs(5);

/// The guest's processes get this fraction of the grace time; the rest is for unmounting and for QEMU's exit.
const PROCESSES_SHARE: u32 = 2;

#[derive(Debug, Error)]
#[error("the memory use of process {pid} cannot be read: {source}")]
pub struct PssError {
    pid: i32,
    source: io::Error,
}

/// The parts of a VM.
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

/// A running VM. Clones share it; after the last one is dropped, QEMU runs on unwatched.
#[derive(Clone, Debug)]
pub struct Vm {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: WorkspaceId,
    process: Process,
    qmp: QmpClient,
    agent: AgentLink,
    /// Whether we sent the signal that ends QEMU.
    killed: Arc<AtomicBool>,
    exit: watch::Receiver<Option<ExitReason>>,
    stall: Arc<watch::Sender<Option<Stall>>>,
    _watcher: AbortOnDropHandle<()>,
}

impl Vm {
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
            tracing::info!(workspace = %id, %reason, "the VM ended");
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

    pub fn record(&self) -> &VmRecord {
        self.inner.process.record()
    }

    /// The agent's client. Reconnects if the connection broke; fails at once if the VM has ended meanwhile.
    pub async fn agent(&self) -> Result<AgentClient, AgentError> {
        tokio::select! {
            // An existing connection takes precedence over the VM's end.
            biased;
            client = self.inner.agent.client() => client,
            _ = self.exited() => Err(AgentError::Disconnected { call: "connect" }),
        }
    }

    /// Resolves with the reason when QEMU has ended. Any number of callers may wait.
    pub async fn exited(&self) -> ExitReason {
        let mut exit = self.inner.exit.clone();
        loop {
            if let Some(reason) = exit.borrow_and_update().clone() {
                return reason;
            }
            if exit.changed().await.is_err() {
                // The watcher lives as long as the VM; if it is gone, the runtime is ending.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Resolves with the reason when the guest is stopped involuntarily. It loses nothing and goes on after
    /// [`Vm::wake`]; if its writes still find no space, it stops again.
    pub async fn stalled(&self) -> String {
        let mut stalled = self.inner.stall.subscribe();
        loop {
            if let Some(stall) = stalled.borrow_and_update().as_ref() {
                return stall.to_string();
            }
            if stalled.changed().await.is_err() {
                // The VM has ended, which `exited` reports.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Lets a guest that we stopped go on, and sets its clock. If that fails, the guest counts as stalled.
    pub async fn resume(&self) -> Result<(), QmpError> {
        let resumed = self.inner.qmp.resume().await;
        self.after_resume(resumed).await
    }

    /// Lets a guest go on that may be stopped for any reason, or is being copied by a task that is gone. A running
    /// guest is left alone.
    pub async fn wake(&self) -> Result<(), QmpError> {
        let woken = self.inner.qmp.wake().await;
        self.after_resume(woken).await
    }

    async fn after_resume(&self, resumed: Result<(), QmpError>) -> Result<(), QmpError> {
        match &resumed {
            Ok(()) => {
                // If the VM went on by itself, its event came before this point and cleared its own reason. A later
                // reason for which it stopped by itself must stay.
                self.inner
                    .stall
                    .send_if_modified(|stall| stall.take_if(|stall| *stall == Stall::Unconfirmed).is_some());
                self.catch_up().await;
            }
            // `exited` reports the end.
            Err(QmpError::Closed) => {}
            Err(_) => {
                self.inner.stall.send_if_modified(|stall| {
                    let unknown = stall.is_none();
                    stall.get_or_insert(Stall::Unconfirmed);
                    unknown
                });
            }
        }
        resumed
    }

    /// Sets the guest's clock, which stood still during the pause.
    pub(crate) async fn catch_up(&self) {
        /// A guest that is stopped again does not answer.
        const DEADLINE: Duration = Duration::from_secs(5);
        let caught_up = async { self.agent().await?.catch_up().await };
        match timeout(DEADLINE, caught_up).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(workspace = %self.inner.id, %error, "the guest's clock may be behind")
            }
            Err(_elapsed) => tracing::warn!(workspace = %self.inner.id, "the guest's clock may be behind"),
        }
    }

    /// The reason, if the VM has ended already.
    pub fn exit_reason(&self) -> Option<ExitReason> {
        self.inner.exit.borrow().clone()
    }

    /// Shuts the VM down in order, and by force if that takes longer than `grace`: the agent ends the guest's processes
    /// and unmounts; then QEMU is told to quit; then QEMU is killed.
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
                    tracing::warn!(workspace = %self.inner.id, %error, "cannot ask the agent to shut down");
                    return std::future::pending().await;
                }
            }
            // The guest switches off only after its answer was read and the connection is released.
            self.inner.agent.release();
            self.exited().await
        };
        if let Ok(reason) = tokio::time::timeout_at(deadline, by_agent).await {
            return reason;
        }
        tracing::warn!(workspace = %self.inner.id, "the guest did not shut down in time; telling QEMU to quit");
        let quit = async {
            // Only the exit counts, not the answer.
            let _ = self.inner.qmp.execute("quit", None).await;
            self.exited().await
        };
        match timeout(QUIT_DEADLINE, quit).await {
            Ok(reason) => reason,
            Err(_elapsed) => self.kill().await,
        }
    }

    /// Ends the VM at once, like a power failure.
    pub async fn kill(&self) -> ExitReason {
        self.inner.killed.store(true, Ordering::Release);
        self.inner.process.kill();
        self.exited().await
    }

    /// The host memory of this VM: its own pages, and its share of shared pages.
    pub fn memory_pss(&self) -> Result<u64, PssError> {
        let pid = self.inner.process.pid();
        let read = || {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
            parse_pss(&text).ok_or(io::Error::from(io::ErrorKind::InvalidData))
        };
        read().map_err(|source| PssError { pid, source })
    }

    /// QEMU's control socket, for other layers.
    pub fn qmp(&self) -> &QmpClient {
        &self.inner.qmp
    }
}

/// The reason why a guest is stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stall {
    /// Its writes find no space.
    NoRoom(String),
    /// We stopped it, or may have, and QEMU did not confirm that it goes on.
    Unconfirmed,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom(reason) => f.write_str(reason),
            Self::Unconfirmed => {
                f.write_str("QEMU has paused it and does not answer; this is tried again until it does")
            }
        }
    }
}

fn parse_pss(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The task that notices the VM's end, and keeps the logs in bounds until then.
struct Watcher {
    /// The reason why the guest is stopped, if it is.
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
                // The end is checked first: nothing else matters once it is known.
                biased;
                exit = self.process.wait() => break exit,
                event = self.events.recv(), if events_open => match event {
                    Ok(event) => {
                        announced = event.shutdown_cause().or(announced);
                        if let Some(stall) = event.stall() {
                            self.stall.send_replace(stall.map(Stall::NoRoom));
                        }
                        if event.is_growth() {
                            self.stop_full_guest().await;
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
            tracing::warn!(%error, "could not remove the sockets of a VM that ended");
        }
        let reason = ExitReason::of(exit, announced, &self.console_log, &self.stderr_log);
        if self.killed.load(Ordering::Acquire) { reason.killed_by_us() } else { reason }
    }
}

impl Watcher {
    /// Stops a guest that has used up its disk, before it writes more.
    async fn stop_full_guest(&self) {
        match self.qmp.execute("stop", None).await {
            Err(QmpError::Closed) => {}
            stopped => {
                if let Err(error) = stopped {
                    // QEMU may carry out the command later than the deadline.
                    tracing::warn!(%error, "could not confirm that a guest that has used up its disk was paused");
                }
                let reason = "its disk and snapshots have reached their size limit".to_owned();
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
        tracing::warn!(log = %log.display(), %error, "could not shorten a log");
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::UnixStream;

    use super::*;
    use agentiso_sys::process::{Launch, Priority};

    /// A QEMU whose VM was stopped for a copy. It refuses to continue the first few times.
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
    async fn stopped_vm_is_stalled_until_woken() {
        let dir = tempfile::tempdir().unwrap();
        let launch = Launch {
            program: "/bin/sleep".into(),
            arguments: vec!["1000".into()],
            log: dir.path().join("log"),
            inherited: Vec::new(),
            priority: Priority::Ordinary,
            group: None,
            cell: agentiso_sys::jail::Cell::open(),
        };
        let qmp = stopped_qemu(2).await;
        let vm = Vm::new(Parts {
            id: WorkspaceId::random(),
            process: launch.spawn().unwrap(),
            events: qmp.events(),
            qmp,
            agent: None,
            agent_socket: dir.path().join("agent.sock"),
            run_dir: dir.path().join("run"),
            recorder: Recorder::without_sources(),
            unrecorded: Vec::new(),
            console_log: dir.path().join("console.log"),
            stderr_log: dir.path().join("stderr.log"),
        });
        assert!(vm.stalled().now_or_never().is_none());
        // As at the end of a snapshot, and then an attempt to repair it.
        assert!(vm.resume().await.is_err());
        assert!(vm.wake().await.is_err());
        let reason = vm.stalled().now_or_never().expect("a waiter is told");
        assert!(reason.contains("tried again"), "{reason}");
        vm.wake().await.unwrap();
        assert_eq!(vm.stalled().now_or_never(), None);
        // The VM goes on by itself, and this is seen before the failure is recorded.
        vm.after_resume(Err(QmpError::NoAnswer { command: "cont".to_owned() })).await.unwrap_err();
        assert!(vm.stalled().now_or_never().is_some());
        vm.wake().await.unwrap();
        assert_eq!(vm.stalled().now_or_never(), None);
        vm.kill().await;
    }

    #[test]
    fn pss_is_read_from_the_rollup() {
        assert_eq!(
            parse_pss("00 ---p [rollup]\nRss: 9 kB\nPss:    1024 kB\nPss_Dirty: 1 kB\n"),
            Some(1 << 20)
        );
        assert_eq!(parse_pss("Rss: 9 kB"), None);
    }
}
