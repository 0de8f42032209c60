//! Those who wait for the server: one request for its answer, and whoever listens for what is said unasked.

use std::sync::{Arc, Weak};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Calls, Gone, Upstream};
use crate::turn::Turn;

/// A request under way. Dropped before its answer, it is cancelled.
#[derive(Debug)]
pub(crate) struct Call {
    pub(super) number: u64,
    /// It has no end of its own: whoever asked has to hang up.
    pub(crate) lasts: bool,
    pub(super) turn: Option<Turn>,
    pub(super) reports: mpsc::Receiver<Value>,
    pub(super) answer: oneshot::Receiver<Value>,
    pub(super) upstream: Arc<Upstream>,
}

#[derive(Debug)]
pub(crate) enum News {
    Report(Value),
    Answer(Value),
    /// The conversation ended before the answer.
    Gone,
}

impl Call {
    /// All reports, then the answer. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> News {
        tokio::select! {
            biased;
            Some(report) = self.reports.recv() => News::Report(report),
            answer = &mut self.answer => answer.map_or(News::Gone, News::Answer),
        }
    }

    /// The answer alone.
    pub(crate) async fn answered(mut self) -> Result<Value, Gone> {
        loop {
            match self.next().await {
                News::Report(_) => {}
                News::Answer(answer) => return Ok(answer),
                News::Gone => return Err(Gone),
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.upstream.calls.abandon(self.number, self.turn.take());
    }
}

/// Somebody who wants to hear what the server says unasked. Does not keep the conversation going.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(super) heard: mpsc::Receiver<Value>,
    pub(super) calls: Weak<Calls>,
}

impl Listening {
    /// `None`: the conversation has ended. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        self.heard.recv().await
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The client was there until now.
        if let Some(calls) = self.calls.upgrade() {
            calls.state().used = Instant::now();
        }
    }
}
