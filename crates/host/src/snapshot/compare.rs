//! How a disk differs from a snapshot of it, read on the host from the layers.

use std::path::Path;

use agentiso_core::ids::SnapshotId;
use agentiso_diff::qcow2::{Chain, Qcow2Error};
use agentiso_diff::{DiffOptions, Difference, PathDiff, diff_paths};

use super::error::SnapshotError;
use crate::disk::{Qcow2Storage, Storage};

/// What may be read to tell bytes that changed from bytes that moved: a second or so.
const MAX_COMPARED: u64 = 512 << 20;

/// What is different now.
#[derive(Debug)]
pub struct Comparison {
    /// Bytes in blocks that were written since.
    pub changed_bytes: u64,
    /// The paths that differ, or why the two file systems cannot be compared.
    pub paths: Result<PathDiff, String>,
}

/// Compares a snapshot with another state of the same volume: a snapshot, or the disk of a machine that is down.
pub(crate) async fn compare(
    dir: &Path,
    snapshot: SnapshotId,
    with: Option<SnapshotId>,
) -> Result<Comparison, SnapshotError> {
    let (old, new) = (top(dir, Some(snapshot)).await?, top(dir, with).await?);
    let compared = tokio::task::spawn_blocking(move || between(&old, &new));
    let compared = compared.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    compared.map_err(|error| SnapshotError::Compare { snapshot, reason: error.to_string() })
}

async fn top(dir: &Path, of: Option<SnapshotId>) -> Result<std::path::PathBuf, SnapshotError> {
    // The storage never gives an empty chain: a volume has at least its image.
    Ok(Qcow2Storage.chain(dir, of).await?.into_iter().next().unwrap_or_default())
}

fn between(old: &Path, new: &Path) -> Result<Comparison, Qcow2Error> {
    let (old, new) = (Chain::open(old)?, Chain::open(new)?);
    // A layer that took the place of several holds the same bytes in another file; reading tells.
    let difference = Difference::between(&old, &new)?.narrowed(&old, &new, MAX_COMPARED)?;
    let is_shared = |range| difference.is_shared(range);
    let options = DiffOptions { is_shared: Some(&is_shared), ..DiffOptions::default() };
    let paths = diff_paths(&old, &new, &options).map_err(|error| error.to_string());
    Ok(Comparison { changed_bytes: difference.bytes(), paths })
}
