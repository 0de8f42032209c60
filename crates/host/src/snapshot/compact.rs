//! Frees the space of deleted snapshots: merges layers that only the next layer needs.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_disk::{KeyframeDue, Merge, Qcow2Storage, Storage};
use agentiso_sys::fault;
use tokio_util::sync::CancellationToken;

use super::error::SnapshotError;
use super::take::{Overlay, freeze, undo};
use crate::qmp::{QmpClient, QmpError};

/// A merge copies the data of the upper layer. One that takes longer is tried again when the next snapshot is deleted.
const MERGE_DEADLINE: Duration = Duration::from_secs(40);

/// The least size of a layer that is merged while its VM runs.
const WORTHWHILE: u64 = 1 << 20;

/// Does all possible merges in the volume of a VM that is down.
pub(crate) async fn offline(dir: &Path) -> Result<(), SnapshotError> {
    while let Some(merge) = Qcow2Storage.redundant(dir).await?.into_iter().next() {
        Qcow2Storage.merge_offline(dir, &merge).await?;
    }
    Ok(())
}

/// The same for a running VM. Its head cannot be merged; a large enough head is frozen first, with an empty layer on
/// top.
pub(crate) async fn online(
    dir: &Path,
    qmp: &QmpClient,
    interrupted: &CancellationToken,
) -> Result<(), SnapshotError> {
    qmp.end_merge().await?;
    let merged = merge_all(dir, qmp, interrupted).await;
    freeze(qmp, dir).await;
    merged
}

async fn merge_all(
    dir: &Path,
    qmp: &QmpClient,
    interrupted: &CancellationToken,
) -> Result<(), SnapshotError> {
    let mut looked = false;
    let mut frozen = false;
    while !interrupted.is_cancelled() {
        let merges = Qcow2Storage.redundant(dir).await?;
        let under = merges.iter().find(|merge| !merge.child_is_head);
        let Some(merge) = under else {
            let worthwhile = merges.iter().any(|merge| is_worthwhile(&merge.child));
            if frozen || !worthwhile {
                return Ok(());
            }
            freeze_head(dir, qmp).await?;
            frozen = true;
            continue;
        };
        let merge = merge.clone();
        if !merge.under_head {
            // The VM was restored to a snapshot outside of this branch, so it does not have the branch open.
            Qcow2Storage.merge_offline(dir, &merge).await?;
            continue;
        }
        let open = qmp.disk_nodes(dir).await?;
        if !looked {
            // A daemon may have ended after a merge, before the layers were closed.
            for gone in open.iter().filter(|node| !node.file.exists()) {
                qmp.forget_node(&gone.node, dir).await?;
            }
            looked = true;
        }
        let node = |file: &Path| {
            let found = open.iter().find(|node| node.file == file).map(|node| node.node.clone());
            found.ok_or_else(|| QmpError::Merge {
                reason: format!("QEMU does not have {} open", file.display()),
            })
        };
        let (child, into) = (node(&merge.child)?, node(&merge.into)?);
        Qcow2Storage.begin_merge(dir, &merge).await?;
        tracing::debug!(?merge, %child, %into, "merging two layers");
        fault::point("delete.merging");
        tokio::select! {
            biased;
            committed = commit(qmp, &child, &into, &merge) => committed?,
            // A partial merge does no harm, and the rest is merged another time.
            () = interrupted.cancelled() => return Ok(qmp.end_merge().await?),
        }
        fault::point("delete.merged");
        Qcow2Storage.merged_online(dir, &merge).await?;
    }
    Ok(())
}

/// Whether a layer is so large that merging it may free a noticeable amount.
fn is_worthwhile(layer: &Path) -> bool {
    layer.metadata().is_ok_and(|meta| meta.blocks() * 512 > WORTHWHILE)
}

/// Puts an empty layer on the head, so that the head can be merged with the layer below it.
async fn freeze_head(dir: &Path, qmp: &QmpClient) -> Result<(), SnapshotError> {
    let temporary = SnapshotId::random();
    let pivot = Qcow2Storage.begin_snapshot(dir, temporary).await?;
    let pivoted = async { Overlay::open(qmp, &pivot).await?.pivot().await };
    if let Err(error) = pivoted.await {
        undo(qmp, dir, temporary, &pivot).await?;
        return Err(error.into());
    }
    Qcow2Storage.finish_snapshot(dir, temporary).await?;
    Ok(Qcow2Storage.forget_snapshot(dir, temporary).await?)
}

/// Shortens a long chain by copying the layers below the head into one. An interruption ends the copy soon; the few
/// small steps after it are completed.
pub(crate) async fn shorten(
    dir: &Path,
    qmp: Option<&QmpClient>,
    due: KeyframeDue,
    interrupted: &CancellationToken,
) -> Result<(), SnapshotError> {
    while !interrupted.is_cancelled() {
        let made = Qcow2Storage.keyframe(dir, due, interrupted).await?;
        let Some(keyframe) = made else { return Ok(()) };
        if let (Some(qmp), true) = (qmp, keyframe.head_is_above) {
            qmp.put_on(&keyframe).await?;
        }
        Qcow2Storage.adopt_keyframe(dir, &keyframe).await?;
        tracing::debug!(dir = %dir.display(), layers = keyframe.replaces.len(), "a chain of layers was shortened");
    }
    Ok(())
}

async fn commit(qmp: &QmpClient, child: &str, into: &str, merge: &Merge) -> Result<(), QmpError> {
    let dir = merge.into.parent().unwrap_or(Path::new("/"));
    let head = qmp.disk_head(dir).await?.node;
    qmp.commit_layer(&head, (child, into), merge, MERGE_DEADLINE).await
}
