//! Compares a disk with a snapshot of it, by reading the layers on the host.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agentiso_core::ids::SnapshotId;
use agentiso_diff::ext4::Kind;
use agentiso_diff::qcow2::{Chain, Qcow2Error};
use agentiso_diff::{DiffOptions, Difference, PathDiff, Watch, diff_paths};
use agentiso_disk::{Qcow2Storage, Storage};
use agentiso_vm::{ChangedPath, ChangedPaths, SnapshotDiff};
use tokio_util::sync::CancellationToken;

use super::error::SnapshotError;

/// The most that is read to tell changed bytes from moved ones; it takes about a second.
const MAX_COMPARED: u64 = 512 << 20;

/// The time limit of a comparison. Two trees of five million files each take half of it; a file system that a guest
/// has crafted could take any time.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Compares a snapshot with another state of the same volume: another snapshot, or the head while the VM is down.
/// Returns soon when it is cancelled or the future is dropped.
pub(crate) async fn compare(
    dir: &Path,
    snapshot: SnapshotId,
    with: Option<SnapshotId>,
    cancelled: &CancellationToken,
) -> Result<SnapshotDiff, SnapshotError> {
    let (old, new) = (top(dir, Some(snapshot)).await?, top(dir, with).await?);
    let stop = Stop::default();
    let mut comparing = tokio::task::spawn_blocking({
        let stop = Arc::clone(&stop.0);
        move || between(&old, &new, &stop)
    });
    let compared = tokio::select! {
        biased;
        compared = &mut comparing => compared,
        () = cancelled.cancelled() => {
            drop(stop);
            comparing.await
        }
    };
    let compared = compared.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    compared.map_err(|error| SnapshotError::Compare { snapshot, reason: error.to_string() })
}

async fn top(dir: &Path, of: Option<SnapshotId>) -> Result<std::path::PathBuf, SnapshotError> {
    // The chain is never empty: a volume has at least its image.
    Ok(Qcow2Storage.chain(dir, of).await?.into_iter().next().unwrap_or_default())
}

/// Tells the thread on drop that its result is no longer wanted.
#[derive(Debug, Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn between(old: &Path, new: &Path, stop: &AtomicBool) -> Result<SnapshotDiff, Qcow2Error> {
    let deadline = Some(Instant::now() + MAX_TIME);
    let (old, new) = (Chain::open(old)?, Chain::open(new)?);
    // A keyframe holds the same bytes as other layers in another file, so the bytes are compared.
    let watch = Watch { deadline, cancelled: Some(stop) };
    let difference = Difference::between(&old, &new, watch)?.narrowed(&old, &new, MAX_COMPARED, watch)?;
    let is_shared = |range| difference.is_shared(range);
    let options = DiffOptions {
        is_shared: Some(&is_shared),
        deadline,
        cancelled: Some(stop),
        ..DiffOptions::default()
    };
    let (paths, paths_unknown) = match diff_paths(&old, &new, &options) {
        Ok(paths) => (Some(changed_paths(paths)), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Ok(SnapshotDiff { changed_bytes: difference.bytes(), paths, paths_unknown })
}

fn changed_paths(diff: PathDiff) -> ChangedPaths {
    let all = |paths: Vec<agentiso_diff::ChangedPath>| paths.iter().map(changed_path).collect();
    ChangedPaths {
        added: all(diff.added),
        modified: all(diff.modified),
        removed: all(diff.removed),
        added_total: diff.counts.added,
        modified_total: diff.counts.modified,
        removed_total: diff.counts.removed,
    }
}

fn changed_path(changed: &agentiso_diff::ChangedPath) -> ChangedPath {
    let kind = match changed.kind {
        Kind::File => "file",
        Kind::Directory => "dir",
        Kind::Symlink => "symlink",
        Kind::CharacterDevice | Kind::BlockDevice | Kind::Pipe | Kind::Socket => "other",
    };
    ChangedPath { path: changed.lossy().into_owned(), kind: kind.to_owned(), size: changed.size }
}
