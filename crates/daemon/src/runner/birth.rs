//! Making a workspace, and undoing it when that fails or nobody waits for it any more.
//!
//! ```text
//!  reserved ─▶ in the ledger ─▶ process recorded ─▶ guest answers ─▶ saved as running ─▶ delivered
//!      └───────────┴──────────────────┴── failure or cancellation ──┴──────────────────────┘
//!                                         undo: process, files, entry
//! ```

use std::time::Instant;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::task::{Existence, Runner};
use crate::error::OpError;
use crate::fault;
use crate::machines::Progress;
use crate::registry::Status;

/// A finished workspace on its way to whoever asked. It counts as handed over only once `accepted` was sent:
/// otherwise it would belong to somebody who never learnt of it.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) boot_time_ms: u64,
    pub(crate) accepted: oneshot::Sender<()>,
}

pub(super) async fn create(
    runner: &mut Runner,
    progress: Progress,
    cancel: CancellationToken,
    deliver: oneshot::Sender<Result<Delivery, OpError>>,
) -> Existence {
    let closing = runner.shared.closing.clone();
    let begun = Instant::now();
    let made = tokio::select! {
        // A cancellation wins even over a result that is ready: it is undone either way.
        biased;
        () = cancel.cancelled() => Err(OpError::Cancelled),
        () = closing.cancelled() => Err(OpError::ShuttingDown),
        made = make(runner, &progress) => made,
    };
    if let Err(error) = made {
        let existence = undo(runner).await;
        let _caller_may_be_gone = deliver.send(Err(error));
        return existence;
    }
    let (accepted, acceptance) = oneshot::channel();
    let boot_time_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let sent = deliver.send(Ok(Delivery { boot_time_ms, accepted })).is_ok();
    if sent && acceptance.await.is_ok() {
        tracing::info!(workspace = %runner.name, boot_time_ms, "created");
        return Existence::Exists;
    }
    tracing::info!(workspace = %runner.name, "nobody waits for it any more; it is removed");
    undo(runner).await
}

async fn make(runner: &mut Runner, progress: &Progress) -> Result<(), OpError> {
    fault::point("create.reserved");
    runner.shared.save().await.map_err(OpError::Ledger)?;
    fault::point("create.ledgered");
    let hook = runner.spawn_hook("create", |machine| Status::Creating { machine: Some(machine) });
    let booted = runner.shared.machines.create(&runner.spec, hook, progress).await;
    let booted = booted.map_err(|failure| OpError::boot(&runner.name, failure))?;
    fault::point("create.booted");
    runner.come_up(booted).await?;
    fault::point("create.saved");
    Ok(())
}

/// Removes what was made. If that fails the workspace stays visible, stopped with the reason, so that it is
/// neither forgotten nor in the way of a later attempt to destroy it.
async fn undo(runner: &mut Runner) -> Existence {
    match runner.destroy().await {
        Ok(()) => Existence::Gone,
        Err(error) => {
            tracing::error!(workspace = %runner.name, %error, "an unfinished workspace could not be removed");
            Existence::Exists
        }
    }
}
