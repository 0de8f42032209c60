//! Creates a workspace, and undoes that if it fails or its client is gone.
//!
//! ```text
//!  reserved ─▶ in the ledger ─▶ process recorded ─▶ guest answers ─▶ saved as running ─▶ delivered
//!      └───────────┴──────────────────┴── failure or cancellation ──┴──────────────────────┘
//!                                         undo: process, files, entry
//! ```
//!
//! A fork waits for its turn first, gets its disk from the source's runner once it is in the ledger, and runs its
//! setup commands before it is saved as running.

use std::sync::Arc;
use std::time::Instant;

use agentiso_core::ids::SnapshotId;
use agentiso_core::names::WorkspaceName;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::import::{ImportSeed, from_file};
use super::setup;
use super::steps::BootKind;
use super::task::{Existence, Runner};
use crate::error::OpError;
use crate::fault;
use crate::first_turn;
use crate::handle::{Handle, Request};
use crate::pool::Standby;
use crate::registry::Status;
use crate::vms::{Booted, Progress, Rung};

/// The source that a workspace is made from.
#[derive(Debug)]
pub(crate) enum Seed {
    Image,
    /// A running VM of that image from the warm pool.
    Standby(Box<Standby>),
    Snapshot(Box<ForkSeed>),
    File(Box<ImportSeed>),
}

#[derive(Debug)]
pub(crate) struct ForkSeed {
    pub(crate) source: Handle,
    pub(crate) source_name: WorkspaceName,
    pub(crate) snapshot: SnapshotId,
    pub(crate) setup_commands: Arc<[String]>,
}

/// A finished workspace on its way to the client. It counts as handed over only once `accepted` was sent: otherwise
/// it would belong to a client that never learnt of it.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) boot_time_ms: u64,
    pub(crate) warning: Option<String>,
    pub(crate) accepted: oneshot::Sender<()>,
}

/// Work on the disk that another task does: the source's runner for a fork, the unpacking of a file for an import.
/// It runs on when the create is cancelled, and is awaited before the workspace is removed: nothing may be written
/// into a directory that is being removed.
pub(super) type Branching = Option<JoinHandle<Result<(), OpError>>>;

pub(super) async fn create(
    runner: &mut Runner,
    seed: Seed,
    progress: Progress,
    cancel: CancellationToken,
    deliver: oneshot::Sender<Result<Delivery, OpError>>,
) -> Existence {
    let closing = runner.shared.closing.clone();
    let begun = Instant::now();
    let mut branching = None;
    let made = tokio::select! {
        // A cancellation wins even over a result that is ready, because the workspace is undone either way.
        biased;
        () = cancel.cancelled() => Err(OpError::Cancelled),
        () = closing.cancelled() => Err(OpError::ShuttingDown),
        made = make(runner, &seed, &mut branching, &progress) => made,
    };
    let warning = match made {
        Ok(warning) => warning,
        Err(error) => {
            let existence = undo(runner, branching).await;
            let _caller_may_be_gone = deliver.send(Err(error));
            return existence;
        }
    };
    let (accepted, acceptance) = oneshot::channel();
    let boot_time_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let sent = deliver.send(Ok(Delivery { boot_time_ms, warning, accepted })).is_ok();
    if sent && acceptance.await.is_ok() {
        tracing::info!(workspace = %runner.name, boot_time_ms, "created");
        return Existence::Exists;
    }
    tracing::info!(workspace = %runner.name, "its client is gone; the new workspace is removed");
    undo(runner, branching).await
}

async fn make(
    runner: &mut Runner,
    seed: &Seed,
    branching: &mut Branching,
    progress: &Progress,
) -> Result<Option<String>, OpError> {
    match seed {
        Seed::Image => from_image(runner, progress).await,
        Seed::Standby(standby) => from_standby(runner, standby, progress).await,
        Seed::Snapshot(seed) => from_snapshot(runner, seed, branching, progress).await,
        Seed::File(seed) => from_file(runner, seed, branching, progress).await,
    }
}

/// Returns the warning of a VM that came up with a problem.
async fn from_image(runner: &mut Runner, progress: &Progress) -> Result<Option<String>, OpError> {
    fault::point("create.reserved");
    runner.shared.save().await.map_err(OpError::Ledger)?;
    fault::point("create.ledgered");
    let hook = runner.spawn_hook(BootKind::Create, |vm| Status::Creating { vm: Some(vm) });
    let booted = runner.shared.vms.create(&runner.spec, hook, progress).await;
    let booted = booted.map_err(|failure| OpError::boot(&runner.name, failure))?;
    fault::point("create.booted");
    let warning = booted.warning.clone();
    runner.come_up(booted).await?;
    fault::point("create.saved");
    Ok(warning)
}

/// The workspace enters the ledger only when it is complete: until then its directory is described as standby, and
/// the sweep removes it after a crash.
async fn from_standby(
    runner: &mut Runner,
    standby: &Standby,
    progress: &Progress,
) -> Result<Option<String>, OpError> {
    let vm = Arc::clone(&standby.vm);
    // Undoing this needs the process that has to be ended.
    runner.shared.set_status(&runner.id, Status::Creating { vm: Some(vm.record()) });
    fault::point("claim.taken");
    let began = Instant::now();
    match vm.identify(&runner.spec).await {
        Ok(()) => {
            let boot_time = began.elapsed();
            fault::point("claim.identified");
            runner.come_up(Booted { vm, rung: Rung::Pool, boot_time, warning: None }).await?;
            fault::point("claim.saved");
            Ok(None)
        }
        Err(failure) => {
            tracing::warn!(workspace = %runner.name, %failure, "a VM of the warm pool is unusable; creating another");
            vm.kill().await;
            runner.shared.vms.halt(&runner.spec, Some(&vm.record())).await;
            runner.shared.network.vacate(&runner.id).await;
            let erased = runner.shared.vms.erase(&runner.spec).await;
            erased.map_err(|source| OpError::Erase { name: runner.name.clone(), source })?;
            runner.shared.set_status(&runner.id, Status::Creating { vm: None });
            from_image(runner, progress).await
        }
    }
}

async fn from_snapshot(
    runner: &mut Runner,
    seed: &ForkSeed,
    branching: &mut Branching,
    progress: &Progress,
) -> Result<Option<String>, OpError> {
    let shared = Arc::clone(&runner.shared);
    let Ok(turn) = shared.forks.acquire().await else { unreachable!("nothing closes this semaphore") };
    let memory = shared.vms.host_memory();
    shared.change(|registry| registry.promise_memory(&runner.id, memory))?;
    fault::point("fork.reserved");
    shared.save().await.map_err(OpError::Ledger)?;
    fault::point("fork.ledgered");
    let (source, name) = (seed.source.clone(), seed.source_name.clone());
    let (snapshot, fork) = (seed.snapshot, Box::new(runner.spec.clone()));
    let asked = shared
        .tasks
        .spawn(async move { source.ask_in_turn(&name, Request::Branch { snapshot, fork }).await.map(drop) });
    let branched = branching.insert(asked).await;
    *branching = None;
    branched.unwrap_or(Err(OpError::ShuttingDown))?;
    fault::point("fork.branched");
    let hook = runner.spawn_hook(BootKind::Fork, |vm| Status::Creating { vm: Some(vm) });
    let booted = shared.vms.create_branch(&runner.spec, hook, progress).await;
    let booted = booted.map_err(|failure| OpError::boot(&runner.name, failure))?;
    fault::point("fork.booted");
    first_turn::within(turn, setup::run(&runner.name, &*booted.vm, &seed.setup_commands)).await?;
    fault::point("fork.prepared");
    let warning = booted.warning.clone();
    runner.come_up(booted).await?;
    fault::point("fork.saved");
    Ok(warning)
}

/// Removes everything that was made. If that fails, the workspace stays visible, stopped with the reason, so that
/// it is not forgotten and can be destroyed later.
async fn undo(runner: &mut Runner, branching: Branching) -> Existence {
    if let Some(branching) = branching {
        let _what_it_made_is_removed = branching.await;
    }
    match runner.destroy().await {
        Ok(()) => Existence::Gone,
        Err(error) => {
            tracing::error!(workspace = %runner.name, %error, "cannot remove an unfinished workspace");
            Existence::Exists
        }
    }
}
