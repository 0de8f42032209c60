//! One job: its kept output and its end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use bytes::Bytes;
use rustix::process::{Signal, WaitIdStatus};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::exec::Capture;

/// The number of output bytes that all jobs together keep.
pub(super) type KeptBytes = Arc<AtomicUsize>;

/// The end of a job.
#[derive(Clone, Copy, Debug)]
struct End {
    exit_code: Option<i32>,
    signal: Option<i32>,
    ran: Duration,
}

#[derive(Debug)]
pub(super) struct Job {
    title: Bytes,
    started: Instant,
    outputs: Mutex<[Capture; 2]>,
    kept: KeptBytes,
    end: watch::Sender<Option<End>>,
    signals: mpsc::Sender<Signal>,
}

impl Drop for Job {
    fn drop(&mut self) {
        self.forget_output();
    }
}

impl Job {
    /// A job that starts at this moment. Signals for it are sent to `signals`.
    pub(super) fn new(shell: &[u8], kept: KeptBytes, signals: mpsc::Sender<Signal>) -> Self {
        Self {
            title: Bytes::copy_from_slice(&shell[..shell.len().min(limits::MAX_JOB_TITLE_BYTES)]),
            started: Instant::now(),
            outputs: Mutex::new(
                [(); 2].map(|()| Capture::new(limits::JOB_HEAD_BYTES, limits::JOB_TAIL_BYTES)),
            ),
            kept,
            end: watch::Sender::new(None),
            signals,
        }
    }

    fn outputs(&self) -> MutexGuard<'_, [Capture; 2]> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds output of the job; keeps as much of it as there is room for.
    pub(super) fn push(&self, stream: usize, bytes: &[u8]) {
        let mut outputs = self.outputs();
        let room = limits::MAX_JOBS_OUTPUT_BYTES.saturating_sub(self.kept.load(Ordering::Relaxed));
        let before = outputs[stream].kept();
        outputs[stream].push_within(bytes, room);
        self.kept.fetch_add(outputs[stream].kept() - before, Ordering::Relaxed);
    }

    /// Drops its kept output; only the length stays known.
    pub(super) fn forget_output(&self) {
        let mut outputs = self.outputs();
        let freed: usize = outputs.iter().map(Capture::kept).sum();
        outputs.iter_mut().for_each(Capture::forget);
        self.kept.fetch_sub(freed, Ordering::Relaxed);
    }

    pub(super) fn is_running(&self) -> bool {
        self.end.borrow().is_none()
    }

    /// Records its end. A leader that did not die in time will die of the SIGKILL that was sent.
    pub(super) fn finish(&self, status: Option<WaitIdStatus>) {
        let end = End {
            exit_code: status.as_ref().and_then(WaitIdStatus::exit_status),
            signal: status.as_ref().map_or(Some(libc::SIGKILL), WaitIdStatus::terminating_signal),
            ran: self.started.elapsed(),
        };
        self.end.send_replace(Some(end));
    }

    /// Resolves when it has ended.
    pub(super) async fn ended(&self) {
        // It fails only if the sender is gone, and `self` holds it.
        drop(self.end.subscribe().wait_for(Option::is_some).await);
    }

    /// Queues a signal for its group. If the queue is full, the signal is dropped: the job already gets more signals
    /// than it can handle.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = self.signals.try_send(signal);
    }

    /// Its state, with its output after the offsets.
    pub(super) fn state(&self, offsets: [u64; 2], head: usize, tail: usize) -> v1::PollJobResponse {
        // The end is read before the output, so that all output before the end is included.
        let end = *self.end.borrow();
        let outputs = self.outputs();
        let captured = |stream: usize| {
            let (head, tail, total_bytes) = outputs[stream].after(offsets[stream], head, tail);
            Some(v1::Captured { head, tail, total_bytes })
        };
        v1::PollJobResponse {
            running: end.is_none(),
            exit_code: end.and_then(|end| end.exit_code),
            signal: end.and_then(|end| end.signal),
            stdout: captured(0),
            stderr: captured(1),
            duration_us: micros(end.map_or_else(|| self.started.elapsed(), |end| end.ran)),
        }
    }

    pub(super) fn summary(&self, job_id: u64) -> v1::JobSummary {
        let end = *self.end.borrow();
        let outputs = self.outputs();
        v1::JobSummary {
            job_id,
            shell: self.title.clone(),
            running: end.is_none(),
            exit_code: end.and_then(|end| end.exit_code),
            signal: end.and_then(|end| end.signal),
            stdout_bytes: outputs[0].total(),
            stderr_bytes: outputs[1].total(),
            duration_us: micros(end.map_or_else(|| self.started.elapsed(), |end| end.ran)),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
