//! All jobs of a machine, by their ids.

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

use super::job::{Job, Kept};
use super::watch::watch;
use crate::exec::{CheckedExec, ExecError, Graveyard, start};

/// Signals on their way to one job.
const QUEUED_SIGNALS: usize = 16;

/// How long a killed job may take to die. Only a process stuck in the kernel takes longer than a moment.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// How long other signals are waited for: a job may have a handler, or stay.
const SIGNAL_WAIT: Duration = Duration::from_millis(500);

/// Ids that an error names.
const NAMED_IDS: usize = 10;

/// All jobs.
#[derive(Clone, Debug)]
pub struct Jobs(Arc<Shared>);

/// What the tasks of jobs share with the table.
#[derive(Debug)]
pub(super) struct Shared {
    table: Mutex<Table>,
    places: Arc<Semaphore>,
    kept: Kept,
    graveyard: Graveyard,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Table {
    jobs: BTreeMap<u64, Arc<Job>>,
    last_id: u64,
}

/// Why something cannot be done with a job.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// As many run as are allowed.
    #[error("{} jobs are running; no more are allowed at once", limits::MAX_RUNNING_JOBS)]
    TooMany,
    /// The command could not be started.
    #[error(transparent)]
    Start(#[from] ExecError),
    /// No job has this id.
    #[error("there is no job {id}; {known}")]
    Unknown {
        /// As it was asked for.
        id: u64,
        /// Which there are.
        known: String,
    },
    /// The kernel has no such signal.
    #[error("there is no signal {0}")]
    Signal(i32),
}

/// A job that nobody knows yet. Dropping it kills it.
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

    /// What it has printed so far.
    pub fn state(&self, head: usize, tail: usize) -> v1::PollJobResponse {
        self.job.state([0; 2], head, tail)
    }

    /// Gives it an id, under which it is found from now on.
    pub fn publish(mut self) -> u64 {
        self.published = true;
        let mut table = self.shared.table();
        table.last_id += 1;
        let id = table.last_id;
        table.jobs.insert(id, Arc::clone(&self.job));
        if table.jobs.len() > limits::MAX_JOBS {
            let oldest = table.jobs.iter().find(|(_, job)| !job.is_running()).map(|(id, _)| *id);
            // Fewer run than are known, so there is one.
            oldest.and_then(|oldest| table.jobs.remove(&oldest));
        }
        id
    }
}

impl Jobs {
    /// No jobs yet.
    pub fn new(graveyard: Graveyard) -> Self {
        Self(Arc::new(Shared {
            table: Mutex::default(),
            places: Arc::new(Semaphore::new(limits::MAX_RUNNING_JOBS)),
            kept: Kept::default(),
            graveyard,
            tasks: TaskTracker::new(),
        }))
    }

    /// Starts a command.
    pub fn start(&self, request: &CheckedExec) -> Result<Pending, JobError> {
        let shared = &self.0;
        let place = Arc::clone(&shared.places).try_acquire_owned().map_err(|_none| JobError::TooMany)?;
        let started = start(request, &shared.graveyard)?;
        let (signals, queue) = mpsc::channel(QUEUED_SIGNALS);
        let job = Arc::new(Job::new(request.shell(), Kept::clone(&shared.kept), signals));
        let watching = watch(Arc::clone(shared), Arc::clone(&job), started, queue);
        shared.tasks.spawn(async move {
            let _place = place;
            watching.await;
        });
        Ok(Pending { shared: Arc::clone(shared), job, published: false })
    }

    /// How a job is; waits for its end, but no longer than asked for.
    pub async fn poll(
        &self,
        request: &v1::PollJobRequest,
        wait: Duration,
    ) -> Result<v1::PollJobResponse, JobError> {
        let job = self.find(request.job_id)?;
        if !wait.is_zero() {
            // Whether it has ended by then is part of the answer.
            drop(timeout(wait, job.ended()).await);
        }
        let offsets = [request.stdout_offset, request.stderr_offset];
        let most = limits::MAX_CAPTURE_BYTES;
        let head = request.head_bytes.min(most);
        let tail = request.tail_bytes.min(most - head);
        Ok(job.state(offsets, head as usize, tail as usize))
    }

    /// Sends a signal to a job and gives it a moment to end; true if it still runs.
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

    /// All jobs that are known, in the order of their ids.
    pub fn list(&self) -> Vec<v1::JobSummary> {
        self.0.table().jobs.iter().map(|(id, job)| job.summary(*id)).collect()
    }

    fn find(&self, id: u64) -> Result<Arc<Job>, JobError> {
        let table = self.0.table();
        table.jobs.get(&id).cloned().ok_or_else(|| JobError::Unknown { id, known: table.known() })
    }
}

impl Table {
    /// Which jobs there are, in words.
    fn known(&self) -> String {
        let last: Vec<String> = self.jobs.keys().rev().take(NAMED_IDS).map(ToString::to_string).collect();
        match self.jobs.len() {
            0 => "none was started since the machine booted".to_owned(),
            all if all > NAMED_IDS => format!("the last {NAMED_IDS} are {}", last.join(", ")),
            _ => format!("there are {}", last.join(", ")),
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn graveyard(&self) -> &Graveyard {
        &self.graveyard
    }

    /// Makes room for output that is about to be kept: jobs that have ended lose theirs, the oldest first.
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
