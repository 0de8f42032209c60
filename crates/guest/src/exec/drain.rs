//! Drains pipes that outlive their command.
//!
//! `server &` leaves a process behind that holds the command's pipes. If the pipes were closed, its next line of
//! output would kill it. So the agent goes on reading them and discards the output.

use std::future::poll_fn;
use std::task::Poll;

use super::group::BackgroundTasks;
use super::output::{Output, ReadStatus};

/// The most background tasks, for pipes and for reaping together. When more processes are detached without redirecting
/// their output, the pipes of further ones are closed.
const MAX_DRAINS: usize = 256;

/// Bytes per read: detached processes print little, and their output is discarded.
const READ_BYTES: usize = 64 * 1024;

/// Reads an abandoned pipe to its end in the background.
pub(crate) fn drain(mut output: Output, background: &BackgroundTasks) {
    if !output.is_open() || background.count() >= MAX_DRAINS {
        return;
    }
    background.spawn(async move {
        while output.is_open() {
            poll_fn(|cx| match output.poll_read(cx, READ_BYTES, |_bytes| true) {
                ReadStatus::Progress => Poll::Ready(()),
                ReadStatus::Waiting => Poll::Pending,
            })
            .await;
            tokio::task::yield_now().await;
        }
    });
}
