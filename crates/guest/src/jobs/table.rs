//! The table of all jobs of a guest, by their ids.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use rustix::process::Signal;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::job::{Job, KeptBytes};
use super::watch::watch;
use crate::exec::{BackgroundTasks, CheckedExec, ExecError, start};

/// The most signals that wait for one job.
const QUEUED_SIGNALS: usize = 16;

/// The time that a killed job gets to die. Only a process that is stuck in the kernel takes longer.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// The time that a job gets to end after other signals. It may handle or ignore them.
const SIGNAL_WAIT: Duration = Duration::from_millis(500);

/// The most ids that an error names.
const NAMED_IDS: usize = 10;

/// All jobs.
#[derive(Clone, Debug)]
pub struct Jobs(Arc<Shared>);

/// The state that the tasks of jobs share with the table.
#[derive(Debug)]
pub(super) struct Shared {
    table: Mutex<Table>,
    slots: Arc<Semaphore>,
    kept: KeptBytes,
    background: BackgroundTasks,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Table {
    jobs: BTreeMap<u64, Arc<Job>>,
    last_id: u64,
}

/// The reason for which an operation on a job failed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// The limit of running jobs is reached.
    #[error("{} jobs are running, the most allowed at once", limits::MAX_RUNNING_JOBS)]
    TooMany,
    /// The command could not be started.
    #[error(transparent)]
    Start(#[from] ExecError),
    /// No job has this id.
    #[error("there is no job {id}; {known}")]
    Unknown {
        /// The requested id.
        id: u64,
        /// The known jobs, in words.
        known: String,
    },
    /// The kernel has no such signal.
    #[error("there is no signal {0}")]
    Signal(i32),
}

/// A job without an id. Dropping it kills it.
#[derive(Debug)]
pub struct Pending {
    shared: Arc<Shared>,
    job: Arc<Job>,
    published: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.published {
            self.job.signal(Signal::KILL);
        }
    }
}

impl Pending {
    /// Resolves when the command has ended.
    pub async fn ended(&self) {
        self.job.ended().await;
    }

    /// Its state with its output so far.
    pub fn state(&self, head: usize, tail: usize) -> v1::PollJobResponse {
        self.job.state([0; 2], head, tail)
    }

    /// Enters it into the table. Returns its id.
    pub fn publish(mut self) -> u64 {
        self.published = true;
        let mut table = self.shared.table();
        table.last_id += 1;
        let id = table.last_id;
        table.jobs.insert(id, Arc::clone(&self.job));
        if table.jobs.len() > limits::MAX_JOBS {
            let oldest = table.jobs.iter().find(|(_, job)| !job.is_running()).map(|(id, _)| *id);
            // Fewer jobs can run than are kept, so there is an ended one.
            oldest.and_then(|oldest| table.jobs.remove(&oldest));
        }
        id
    }
}

impl Jobs {
    /// An empty table.
    pub fn new(background: BackgroundTasks) -> Self {
        Self(Arc::new(Shared {
            table: Mutex::default(),
            slots: Arc::new(Semaphore::new(limits::MAX_RUNNING_JOBS)),
            kept: KeptBytes::default(),
            background,
            tasks: TaskTracker::new(),
        }))
    }

    /// Starts a command.
    pub fn start(&self, request: &CheckedExec) -> Result<Pending, JobError> {
        let shared = &self.0;
        let slot = Arc::clone(&shared.slots).try_acquire_owned().map_err(|_none| JobError::TooMany)?;
        let started = start(request, &shared.background)?;
        let (signals, queue) = mpsc::channel(QUEUED_SIGNALS);
        let job = Arc::new(Job::new(request.shell(), KeptBytes::clone(&shared.kept), signals));
        let watching = watch(Arc::clone(shared), Arc::clone(&job), started, queue);
        shared.tasks.spawn(async move {
            let _slot = slot;
            watching.await;
        });
        Ok(Pending { shared: Arc::clone(shared), job, published: false })
    }

    /// The state of a job. Waits for its end, but no longer than `wait`.
    pub async fn poll(
        &self,
        request: &v1::PollJobRequest,
        wait: Duration,
    ) -> Result<v1::PollJobResponse, JobError> {
        let job = self.find(request.job_id)?;
        if !wait.is_zero() {
            // The answer says whether it has ended by then.
            drop(timeout(wait, job.ended()).await);
        }
        let offsets = [request.stdout_offset, request.stderr_offset];
        let most = limits::MAX_CAPTURE_BYTES;
        let head = request.head_bytes.min(most);
        let tail = request.tail_bytes.min(most - head);
        Ok(job.state(offsets, head as usize, tail as usize))
    }

    /// Sends a signal to a job and gives it a moment to end. Returns true if it still runs.
    pub async fn kill(&self, id: u64, signal: i32) -> Result<bool, JobError> {
        let job = self.find(id)?;
        let signal = Signal::from_named_raw(signal).ok_or(JobError::Signal(signal))?;
        if job.is_running() {
            job.signal(signal);
            let wait = if signal == Signal::KILL { KILL_WAIT } else { SIGNAL_WAIT };
            drop(timeout(wait, job.ended()).await);
        }
        Ok(job.is_running())
    }

    /// All jobs of the table, in the order of their ids.
    pub fn list(&self) -> Vec<v1::JobSummary> {
        self.0.table().jobs.iter().map(|(id, job)| job.summary(*id)).collect()
    }

    fn find(&self, id: u64) -> Result<Arc<Job>, JobError> {
        let table = self.0.table();
        table.jobs.get(&id).cloned().ok_or_else(|| JobError::Unknown { id, known: table.known() })
    }
}

impl Table {
    /// The known jobs, in words.
    fn known(&self) -> String {
        let last: Vec<String> = self.jobs.keys().rev().take(NAMED_IDS).map(ToString::to_string).collect();
        match self.jobs.len() {
            0 => "no job was started since the VM booted".to_owned(),
            all if all > NAMED_IDS => format!("the latest {NAMED_IDS} jobs: {}", last.join(", ")),
            _ => format!("known jobs: {}", last.join(", ")),
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn background(&self) -> &BackgroundTasks {
        &self.background
    }

    /// Makes room for output that is about to be kept, by dropping the output of ended jobs, the oldest first.
    pub(super) fn make_room(&self, bytes: usize) {
        let full = || self.kept.load(Ordering::Relaxed) + bytes > limits::MAX_JOBS_OUTPUT_BYTES;
        if !full() {
            return;
        }
        let table = self.table();
        for job in table.jobs.values().filter(|job| !job.is_running()) {
            job.forget_output();
            if !full() {
                return;
            }
        }
    }
}
