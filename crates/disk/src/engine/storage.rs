//! Implements the asynchronous [`Storage`] for every [`Layers`] backend.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentiso_core::ids::SnapshotId;
use agentiso_vm::{SizesOf, VolumeSizes};
use tokio_util::sync::CancellationToken;

use super::{keyframe, make, merge, settle, sizes, snapshot};
use crate::error::DiskError;
use crate::layers::Layers;
use crate::storage::{Backing, Keyframe, KeyframeDue, Merge, Pivot, Storage};

/// Runs blocking work on its own thread. Begun work runs to its end even if the future is dropped.
async fn run_blocking<L: Layers, T: Send + 'static>(
    layers: &L,
    directory: &Path,
    work: impl FnOnce(&L, &Path) -> Result<T, DiskError> + Send + 'static,
) -> Result<T, DiskError> {
    let (layers, directory) = (layers.clone(), directory.to_owned());
    let task = tokio::task::spawn_blocking(move || work(&layers, &directory));
    task.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// The same for a new volume. If the future was dropped meanwhile, the volume is removed again, because the caller,
/// who made the directory, may have tried to remove it too early.
async fn make_blocking<L: Layers>(
    layers: &L,
    directory: &Path,
    work: impl FnOnce(&L, &Path) -> Result<PathBuf, DiskError> + Send + 'static,
) -> Result<PathBuf, DiskError> {
    let waiting = Arc::new(());
    let awaited = Arc::downgrade(&waiting);
    let made = run_blocking(layers, directory, move |layers, dir| {
        let made = work(layers, dir)?;
        if awaited.strong_count() == 0 {
            make::discard(layers, dir)?;
        }
        Ok(made)
    });
    let made = made.await;
    drop(waiting);
    made
}

impl<L: Layers> Storage for L {
    async fn create_from_image(
        &self,
        directory: &Path,
        backing: &Backing,
        virtual_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        let backing = backing.clone();
        make_blocking(self, directory, move |layers, dir| make::create(layers, dir, &backing, virtual_bytes))
            .await
    }

    async fn fork(
        &self,
        source: &Path,
        snapshot: SnapshotId,
        directory: &Path,
    ) -> Result<PathBuf, DiskError> {
        let source = source.to_owned();
        make_blocking(self, directory, move |layers, dir| make::fork(layers, &source, snapshot, dir)).await
    }

    async fn head(&self, directory: &Path) -> Result<PathBuf, DiskError> {
        run_blocking(self, directory, move |layers, dir| snapshot::head(layers, dir)).await
    }

    async fn begin_snapshot(&self, directory: &Path, id: SnapshotId) -> Result<Pivot, DiskError> {
        run_blocking(self, directory, move |layers, dir| snapshot::begin(layers, dir, id)).await
    }

    async fn finish_snapshot(&self, directory: &Path, id: SnapshotId) -> Result<(), DiskError> {
        run_blocking(self, directory, move |layers, dir| snapshot::finish(layers, dir, id)).await
    }

    async fn abandon_snapshot(&self, directory: &Path, id: SnapshotId) -> Result<(), DiskError> {
        run_blocking(self, directory, move |layers, dir| snapshot::abandon(layers, dir, id)).await
    }

    async fn restore(&self, directory: &Path, id: SnapshotId) -> Result<PathBuf, DiskError> {
        run_blocking(self, directory, move |layers, dir| snapshot::restore(layers, dir, id)).await
    }

    async fn forget_snapshot(&self, directory: &Path, id: SnapshotId) -> Result<(), DiskError> {
        run_blocking(self, directory, move |layers, dir| snapshot::forget(layers, dir, id)).await
    }

    async fn redundant(&self, directory: &Path) -> Result<Vec<Merge>, DiskError> {
        run_blocking(self, directory, move |layers, dir| merge::redundant(layers, dir)).await
    }

    async fn begin_merge(&self, directory: &Path, merge: &Merge) -> Result<(), DiskError> {
        let merge = merge.clone();
        run_blocking(self, directory, move |layers, dir| merge::begin(layers, dir, &merge)).await
    }

    async fn merge_offline(&self, directory: &Path, merge: &Merge) -> Result<(), DiskError> {
        let merge = merge.clone();
        run_blocking(self, directory, move |layers, dir| merge::offline(layers, dir, &merge)).await
    }

    async fn merged_online(&self, directory: &Path, merge: &Merge) -> Result<(), DiskError> {
        let merge = merge.clone();
        run_blocking(self, directory, move |layers, dir| merge::online(layers, dir, &merge)).await
    }

    async fn keyframe(
        &self,
        directory: &Path,
        due: KeyframeDue,
        stop: &CancellationToken,
    ) -> Result<Option<Keyframe>, DiskError> {
        let stop = stop.clone();
        run_blocking(self, directory, move |layers, dir| keyframe::make(layers, dir, due, &stop)).await
    }

    async fn adopt_keyframe(&self, directory: &Path, keyframe: &Keyframe) -> Result<(), DiskError> {
        let file = keyframe.file.clone();
        run_blocking(self, directory, move |layers, dir| keyframe::adopt(layers, dir, &file)).await
    }

    async fn settle(
        &self,
        directory: &Path,
        running_head: Option<&Path>,
        known: &[SnapshotId],
    ) -> Result<(), DiskError> {
        let (running, known) = (running_head.map(Path::to_owned), known.to_vec());
        run_blocking(self, directory, move |layers, dir| {
            settle::settle(layers, dir, running.as_deref(), &known)
        })
        .await
    }

    async fn sizes(&self, directory: &Path) -> Result<VolumeSizes, DiskError> {
        run_blocking(self, directory, move |layers, dir| sizes(layers, dir, SizesOf::All)).await
    }

    async fn delete(&self, directory: &Path) -> Result<(), DiskError> {
        run_blocking(self, directory, move |layers, dir| make::delete(layers, dir)).await
    }

    async fn origin(&self, directory: &Path) -> Result<Option<SnapshotId>, DiskError> {
        run_blocking(self, directory, move |layers, dir| snapshot::origin(layers, dir)).await
    }

    async fn chain(&self, directory: &Path, of: Option<SnapshotId>) -> Result<Vec<PathBuf>, DiskError> {
        run_blocking(self, directory, move |layers, dir| snapshot::chain(layers, dir, of)).await
    }
}
