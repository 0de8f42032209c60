//! The task of one job, from its start to its end.

use std::sync::Arc;

use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::job::Job;
use super::table::Shared;
use crate::exec::{DRAIN_GRACE, Started, drain, read_outputs};

/// Reads the output of a job and passes signals to it, until it has ended.
pub(super) async fn watch(
    shared: Arc<Shared>,
    job: Arc<Job>,
    started: Started,
    mut signals: mpsc::Receiver<Signal>,
) {
    let Started { group, mut outputs, pid: _ } = started;
    let mut ended = false;
    let grace = sleep_until(Instant::now());
    tokio::pin!(grace);
    loop {
        let reading = outputs.iter().any(|output| output.is_open());
        if ended && !reading {
            break;
        }
        tokio::select! {
            // As for commands: the grace period holds even if the job prints without pause, and output is last because
            // it may never pause.
            biased;
            () = &mut grace, if ended => break,
            Some(signal) = signals.recv() => group.signal(signal),
            () = group.ended(), if !ended => {
                ended = true;
                grace.as_mut().reset(Instant::now() + DRAIN_GRACE);
            }
            () = read_outputs(&mut outputs, usize::MAX, |stream, bytes| {
                shared.make_room(bytes.len());
                job.push(stream, bytes);
                true
            }), if reading => {
                // The job may print for ever, and other tasks must run too.
                tokio::task::consume_budget().await;
            }
        }
    }
    let status = group.finish().unwrap_or_default();
    for output in outputs {
        drain(output, shared.background());
    }
    job.finish(status);
}
