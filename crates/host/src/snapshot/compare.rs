//! Compares a disk with a snapshot of it, by reading the layers on the host.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agentiso_core::ids::SnapshotId;
use agentiso_diff::qcow2::{Chain, Qcow2Error};
use agentiso_diff::{DiffOptions, Difference, PathDiff, Watch, diff_paths};
use tokio_util::sync::CancellationToken;

use super::error::SnapshotError;
use crate::disk::{Qcow2Storage, Storage};

/// The most that is read to tell changed bytes from moved ones; it takes about a second.
const MAX_COMPARED: u64 = 512 << 20;

/// The time limit of a comparison. Two trees of five million files each take half of it; a file system that a guest
/// has crafted could take any time.
const MAX_TIME: Duration = Duration::from_secs(60);

/// The difference between two disks.
#[derive(Debug)]
pub struct Comparison {
    /// Bytes in blocks that were written since the snapshot.
    pub changed_bytes: u64,
    /// The paths that differ, or the reason why the two file systems cannot be compared.
    pub paths: Result<PathDiff, String>,
}

/// Compares a snapshot with another state of the same volume: another snapshot, or the head while the VM is down.
/// Returns soon when it is cancelled or the future is dropped.
pub(crate) async fn compare(
    dir: &Path,
    snapshot: SnapshotId,
    with: Option<SnapshotId>,
    cancelled: &CancellationToken,
) -> Result<Comparison, SnapshotError> {
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

fn between(old: &Path, new: &Path, stop: &AtomicBool) -> Result<Comparison, Qcow2Error> {
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
    let paths = diff_paths(&old, &new, &options).map_err(|error| error.to_string());
    Ok(Comparison { changed_bytes: difference.bytes(), paths })
}
