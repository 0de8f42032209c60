//! Pipes that outlive their command.
//!
//! `server &` leaves a process behind that holds the command's pipes. If the pipes were closed, its next line of
//! output would kill it; so they are read on, to nowhere.

use std::future::poll_fn;
use std::task::Poll;

use super::group::Graveyard;
use super::output::{Output, Turn};

/// Pipes (and reapers) kept at once. Whoever detaches more processes than that without redirecting their output
/// finds the pipes of further ones closed.
const MAX_DRAINS: usize = 256;

/// Bytes per read: detached processes print little, and nobody waits for it.
const READ_BYTES: usize = 64 * 1024;

/// Reads an abandoned pipe to its end in the background.
pub(crate) fn drain(mut output: Output, graveyard: &Graveyard) {
    if !output.is_open() || graveyard.occupied() >= MAX_DRAINS {
        return;
    }
    graveyard.bury(async move {
        while output.is_open() {
            poll_fn(|cx| match output.poll_turn(cx, READ_BYTES, |_bytes| true) {
                Turn::Progress => Poll::Ready(()),
                Turn::Waiting => Poll::Pending,
            })
            .await;
            tokio::task::yield_now().await;
        }
    });
}
