//! Receivers of the server's messages: a call that waits for its answer, and a listener for other notifications.

use std::sync::{Arc, Weak};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Calls, Gone, Upstream};
use crate::permits::Permit;

/// A request in progress. Dropping it before its answer cancels it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(super) number: u64,
    /// It has no end of its own: the client has to hang up.
    pub(crate) lasts: bool,
    pub(super) permit: Option<Permit>,
    pub(super) reports: mpsc::Receiver<Value>,
    pub(super) answer: oneshot::Receiver<Value>,
    pub(super) upstream: Arc<Upstream>,
}

#[derive(Debug)]
pub(crate) enum CallEvent {
    Report(Value),
    Answer(Value),
    /// The connection ended before the answer.
    Gone,
}

impl Call {
    /// Yields all reports, then the answer. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> CallEvent {
        tokio::select! {
            biased;
            Some(report) = self.reports.recv() => CallEvent::Report(report),
            answer = &mut self.answer => answer.map_or(CallEvent::Gone, CallEvent::Answer),
        }
    }

    /// Waits for the answer alone and discards reports.
    pub(crate) async fn answered(mut self) -> Result<Value, Gone> {
        loop {
            match self.next().await {
                CallEvent::Report(_) => {}
                CallEvent::Answer(answer) => return Ok(answer),
                CallEvent::Gone => return Err(Gone),
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.upstream.calls.abandon(self.number, self.permit.take());
    }
}

/// A listener for notifications that belong to no request. It does not keep the upstream alive.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(super) heard: mpsc::Receiver<Value>,
    pub(super) calls: Weak<Calls>,
}

impl Listening {
    /// `None` if the connection has ended. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        self.heard.recv().await
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The client has listened until this moment, so the idle time begins here.
        if let Some(calls) = self.calls.upgrade() {
            calls.state().used = Instant::now();
        }
    }
}
