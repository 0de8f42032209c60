//! Runs one tool call to its end: sends progress, stops when the client cancels or disconnects, and answers even if the
//! tool panics.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use rmcp::model::CallToolResult;
use tokio_util::sync::CancellationToken;

use crate::answer::Failure;
use crate::offer::Running;
use crate::progress::Pump;

/// Time limit for the last progress reports; then the answer is sent without them.
const LAST_REPORTS: Duration = Duration::from_secs(2);

/// The error code of the answer when a tool panics.
pub(crate) const DEFECT: &str = "internal";

/// The call was cancelled, or its client is gone: no answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancelled;

/// Dropping `running` ends its work; in a guest, the process group of its command.
pub(crate) async fn run(
    tool: &str,
    running: Running,
    pump: Option<Pump>,
    cancelled: &CancellationToken,
    closed: &CancellationToken,
) -> Result<CallToolResult, Cancelled> {
    let work = async {
        let outcome = match pump {
            None => AssertUnwindSafe(running).catch_unwind().await,
            Some(pump) => with_progress(running, pump).await,
        };
        match outcome {
            Ok(result) => result,
            Err(_) => {
                tracing::error!(tool, "a tool panicked");
                let message = format!("{tool} failed because of a bug in agentiso");
                let failure = Failure::new(DEFECT, message).with_hint("see the daemon's log");
                failure.into_result()
            }
        }
    };
    // The work comes first: a finished call is answered, even if the client has meanwhile stopped sending.
    tokio::select! {
        biased;
        result = work => Ok(result),
        () = cancelled.cancelled() => Err(Cancelled),
        () = closed.cancelled() => Err(Cancelled),
    }
}

type Outcome = std::thread::Result<<Running as Future>::Output>;

/// Reports are sent while the work goes on, and all of them before its answer: a report about an answered request
/// confuses clients.
async fn with_progress(running: Running, pump: Pump) -> Outcome {
    let mut work = AssertUnwindSafe(running).catch_unwind();
    let sending = pump.run();
    tokio::pin!(sending);
    let outcome = tokio::select! {
        biased;
        outcome = &mut work => outcome,
        // Reports can no longer be sent, but the work goes on.
        () = &mut sending => return work.await,
    };
    // The reporter lives in the work; once it is dropped the pump ends after the queued reports.
    drop(work);
    if tokio::time::timeout(LAST_REPORTS, sending).await.is_err() {
        tracing::debug!("the client does not read its progress reports");
    }
    outcome
}
