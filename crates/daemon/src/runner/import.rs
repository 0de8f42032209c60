//! Creates a workspace from a file: unpacks it, then restores its snapshot.

use std::path::PathBuf;
use std::sync::Arc;

use agentiso_core::ids::SnapshotId;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::create::Branching;
use super::steps::BootKind;
use super::task::Runner;
use crate::error::OpError;
use crate::fault;
use crate::registry::Status;
use crate::space::SpacePromise;
use crate::vms::{Arrival, CarryFailure, Facts, Progress};

#[derive(Debug)]
pub(crate) struct ImportSeed {
    pub(crate) file: PathBuf,
    /// The new id of its snapshot.
    pub(crate) snapshot: SnapshotId,
    /// The facts of the file for which the workspace was reserved.
    pub(crate) vm: Facts,
    pub(crate) with_memory: bool,
    pub(crate) _room: SpacePromise,
}

pub(super) async fn from_file(
    runner: &mut Runner,
    seed: &ImportSeed,
    unpacking: &mut Branching,
    progress: &Progress,
) -> Result<Option<String>, OpError> {
    let shared = Arc::clone(&runner.shared);
    fault::point("import.reserved");
    shared.save().await.map_err(OpError::Ledger)?;
    fault::point("import.ledgered");
    let failed = |source| OpError::Import { file: seed.file.clone(), source };
    let cancel = CancellationToken::new();
    let _cancelled_with_us = cancel.clone().drop_guard();
    let (deliver, delivery) = oneshot::channel();
    let (vms, spec, file) = (Arc::clone(&shared.vms), runner.spec.clone(), seed.file.clone());
    let (snapshot, with_memory, watched) = (seed.snapshot, seed.with_memory, progress.clone());
    *unpacking = Some(shared.tasks.spawn(async move {
        let arrival = Arrival { file: &file, snapshot, with_memory };
        let unpacked = vms.import(&spec, arrival, &watched, &cancel).await;
        let _caller_may_be_gone = deliver.send(unpacked);
        Ok(())
    }));
    let imported = delivery.await.map_err(|_| OpError::ShuttingDown)?.map_err(failed)?;
    *unpacking = None;
    fault::point("import.unpacked");
    if imported.vm != seed.vm {
        let reason = "the file changed while it was read".to_owned();
        return Err(failed(CarryFailure::Unusable { reason }));
    }
    let Facts { snapshot: name, taken_at, .. } = imported.vm;
    shared.update(&runner.id, |workspace| {
        workspace.snapshots.add(seed.snapshot, name, imported.has_memory, taken_at);
    });
    let hook = runner.spawn_hook(BootKind::Import, |vm| Status::Creating { vm: Some(vm) });
    let booted = shared.vms.restore(&runner.spec, seed.snapshot, hook, progress).await;
    let booted = booted.map_err(|failure| OpError::boot(&runner.name, failure))?;
    fault::point("import.booted");
    let warnings: Vec<String> = [imported.warning, booted.warning.clone()].into_iter().flatten().collect();
    runner.come_up(booted).await?;
    fault::point("import.saved");
    Ok((!warnings.is_empty()).then(|| warnings.join("; ")))
}
