//! Runs one tool call to its end: with progress, stopped when the client cancels or goes, and answered even if
//! the tool panics.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use rmcp::model::CallToolResult;
use tokio_util::sync::CancellationToken;

use crate::answer::Failure;
use crate::offer::Running;
use crate::progress::Pump;

/// How long the last progress reports may take before the answer goes out without them.
const LAST_REPORTS: Duration = Duration::from_secs(2);

/// The code of the answer when a tool panics.
pub(crate) const DEFECT: &str = "internal";

/// The call was cancelled, or its client is gone: there is nobody to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancelled;

/// Dropping `running` ends what it does; in a guest, the process group of its command.
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
                let message = format!("{tool} failed because of a defect in agentiso");
                let failure = Failure::new(DEFECT, message).with_hint("the server's log has the details");
                failure.into_result()
            }
        }
    };
    // The work first: what is finished is answered, even if the client said its last word meanwhile.
    tokio::select! {
        biased;
        result = work => Ok(result),
        () = cancelled.cancelled() => Err(Cancelled),
        () = closed.cancelled() => Err(Cancelled),
    }
}

type Outcome = std::thread::Result<<Running as Future>::Output>;

/// Reports go out while the work goes on, and all of them before its answer: a report about a request that has
/// been answered confuses clients.
async fn with_progress(running: Running, pump: Pump) -> Outcome {
    let mut work = AssertUnwindSafe(running).catch_unwind();
    let sending = pump.run();
    tokio::pin!(sending);
    let outcome = tokio::select! {
        biased;
        outcome = &mut work => outcome,
        // The client cannot be told any more; that is no reason to stop.
        () = &mut sending => return work.await,
    };
    // The reporter lives in the work; once it is gone the pump ends after what is still queued.
    drop(work);
    if tokio::time::timeout(LAST_REPORTS, sending).await.is_err() {
        tracing::debug!("the client does not read its progress reports");
    }
    outcome
}
