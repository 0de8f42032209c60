//! Giving back what deleted snapshots held: layers that nothing but the next one needs are merged with it.

use std::path::Path;
use std::time::Duration;

use super::error::SnapshotError;
use crate::disk::{Merge, Qcow2Storage, Storage};
use crate::qmp::{QmpClient, QmpError};

/// One merge copies what the upper layer holds. What takes longer is tried again when the next snapshot goes.
const MERGE_DEADLINE: Duration = Duration::from_secs(40);

/// Merges everything that can be merged in the volume of a machine that is down.
pub(crate) async fn offline(dir: &Path) -> Result<(), SnapshotError> {
    while let Some(merge) = Qcow2Storage.redundant(dir).await?.into_iter().next() {
        Qcow2Storage.merge_offline(dir, &merge).await?;
    }
    Ok(())
}

/// The same while the machine runs. What it writes to is left alone: it is merged when the machine is down.
pub(crate) async fn online(dir: &Path, qmp: &QmpClient) -> Result<(), SnapshotError> {
    loop {
        let merges = Qcow2Storage.redundant(dir).await?;
        let Some(merge) = merges.into_iter().find(|merge| !merge.child_is_head) else { return Ok(()) };
        if !merge.under_head {
            // A branch that the machine went back from and does not have open.
            Qcow2Storage.merge_offline(dir, &merge).await?;
            continue;
        }
        let open = qmp.disk_nodes().await?;
        let node = |file: &Path| {
            let found = open.iter().find(|node| node.file == file).map(|node| node.node.clone());
            found.ok_or_else(|| QmpError::Merge {
                reason: format!("QEMU does not have {} open", file.display()),
            })
        };
        let (child, into) = (node(&merge.child)?, node(&merge.into)?);
        Qcow2Storage.begin_merge(dir, &merge).await?;
        tracing::debug!(?merge, %child, %into, "merging two layers");
        commit(qmp, &child, &into, &merge).await?;
        Qcow2Storage.merged_online(dir, &merge).await?;
    }
}

async fn commit(qmp: &QmpClient, child: &str, into: &str, merge: &Merge) -> Result<(), QmpError> {
    let head = qmp.disk_head().await?.node;
    let below = merge.into.file_name().unwrap_or_default().to_string_lossy();
    qmp.commit_layer(&head, child, into, &below, MERGE_DEADLINE).await
}
