//! Giving back what deleted snapshots held: layers that nothing but the next one needs are merged with it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use tokio_util::sync::CancellationToken;

use super::error::SnapshotError;
use super::take::{Overlay, freeze, undo};
use crate::disk::{KeyframeDue, Merge, Qcow2Storage, Storage};
use crate::fault;
use crate::qmp::{QmpClient, QmpError};

/// One merge copies what the upper layer holds. What takes longer is tried again when the next snapshot goes.
const MERGE_DEADLINE: Duration = Duration::from_secs(40);

/// What a layer must hold at least to be merged while its machine runs.
const WORTHWHILE: u64 = 1 << 20;

/// Merges everything that can be merged in the volume of a machine that is down.
pub(crate) async fn offline(dir: &Path) -> Result<(), SnapshotError> {
    while let Some(merge) = Qcow2Storage.redundant(dir).await?.into_iter().next() {
        Qcow2Storage.merge_offline(dir, &merge).await?;
    }
    Ok(())
}

/// The same while the machine runs. A layer that it writes to cannot be merged; one that holds enough is frozen first,
/// with an empty one on top.
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
            // A branch that the machine went back from and does not have open.
            Qcow2Storage.merge_offline(dir, &merge).await?;
            continue;
        }
        let open = qmp.disk_nodes(dir).await?;
        if !looked {
            // Somebody may have merged them and gone before they were closed.
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
            // What is merged so far does no harm, and the rest is merged another time.
            () = interrupted.cancelled() => return Ok(qmp.end_merge().await?),
        }
        fault::point("delete.merged");
        Qcow2Storage.merged_online(dir, &merge).await?;
    }
    Ok(())
}

/// Whether a layer holds so much that merging it may give back a noticeable part.
fn is_worthwhile(layer: &Path) -> bool {
    layer.metadata().is_ok_and(|meta| meta.blocks() * 512 > WORTHWHILE)
}

/// Puts an empty layer on what the machine writes to, so that this can be merged with what lies below.
async fn freeze_head(dir: &Path, qmp: &QmpClient) -> Result<(), SnapshotError> {
    let nobodys = SnapshotId::random();
    let pivot = Qcow2Storage.begin_snapshot(dir, nobodys).await?;
    let pivoted = async { Overlay::open(qmp, &pivot).await?.pivot().await };
    if let Err(error) = pivoted.await {
        undo(qmp, dir, nobodys, &pivot).await?;
        return Err(error.into());
    }
    Qcow2Storage.finish_snapshot(dir, nobodys).await?;
    Ok(Qcow2Storage.forget_snapshot(dir, nobodys).await?)
}

/// Shortens a chain of many layers: what lies below the head is copied into one. Copying stops soon when it is
/// interrupted; what comes after it is a few small steps.
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
