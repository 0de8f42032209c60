//! The interface of a storage backend.
//!
//! A *volume* is the disk of one workspace: the layer that its VM writes to (the *head*) and its snapshots. It has its
//! own directory, with files that build on each other (*layers*):
//!
//! ```text
//! image ◀── layer ◀── layer ◀── head          a layer is frozen when another is put on it
//!             ▲         ▲
//!          snapshot  snapshot ◀── layer …     a restore, or a fork, puts a fresh layer on a frozen one
//! ```
//!
//! Only one caller at a time may use a directory.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};

use agentiso_core::ids::SnapshotId;
use tokio_util::sync::CancellationToken;

use super::error::DiskError;

/// The source of a new disk: an image, and the layers that a template put on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The image's name, for messages.
    pub name: String,
    /// The lowest layer first. Each other layer has the one before it as its backing file.
    pub layers: Vec<PathBuf>,
}

/// A begun snapshot: the VM has to continue in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pivot {
    /// The head so far, which becomes the snapshot.
    pub from: PathBuf,
    /// An empty layer on top of `from`.
    pub to: PathBuf,
}

/// Two layers that can become one, because the lower one is neither the head nor a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The upper layer, which is removed.
    pub child: PathBuf,
    /// The lower layer, which receives the data of the upper one.
    pub into: PathBuf,
    /// The layers on top of `child`, which get `into` as their backing.
    pub above: Vec<PathBuf>,
    /// The VM writes to `child`, and will write to `into`.
    pub child_is_head: bool,
    /// A running VM has both layers open and must do the merge itself. If false, they can be merged as if no VM ran.
    pub under_head: bool,
}

/// A layer that replaces several others, so that a read passes through fewer files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyframe {
    pub file: PathBuf,
    /// The layers whose content it holds, the topmost first. It reads as the topmost does.
    pub replaces: Vec<PathBuf>,
    /// The backing of the replaced layers, and of the keyframe.
    pub below: Option<PathBuf>,
    /// The layers on top of the replaced ones, which get the keyframe as their backing.
    pub above: Vec<PathBuf>,
    /// The head is among `above`, so a running VM has to switch to the keyframe itself. The backing of any other layer
    /// can be changed while a VM runs; it reads the old layers until it is started again.
    pub head_is_above: bool,
}

/// The condition for a keyframe. A read of 4 KiB through one layer takes 19 µs, through 20 takes 33 µs, through 100
/// takes 224 µs, and QEMU visits all layers for every snapshot.
#[derive(Clone, Copy, Debug)]
pub struct KeyframeDue {
    /// The length of a run of layers that is replaced.
    pub layers: usize,
    /// The limit of the data that is copied. Larger layers further down stay as they are.
    pub most_bytes: u64,
}

impl KeyframeDue {
    /// For a volume whose client is not waiting.
    pub const AT_REST: Self = Self::after(16);
    /// For snapshots in quick succession, where the copy has to finish before the next one.
    pub(crate) const IN_A_ROW: Self = Self { layers: 16, most_bytes: 64 << 20 };

    pub const fn after(layers: usize) -> Self {
        Self { layers, most_bytes: u64::MAX }
    }
}

/// The snapshots whose sizes are computed besides the volume's own. Each takes a look at the layers' tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizesOf {
    NoSnapshot,
    Snapshot(SnapshotId),
    All,
}

/// A snapshot as the volume's record lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSnapshot {
    pub id: SnapshotId,
    /// The nearest snapshot below it.
    pub parent: Option<SnapshotId>,
    pub has_memory: bool,
    /// It was begun after the volume was last settled, so the caller may not know of it.
    pub unconfirmed: bool,
}

/// The sizes of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSizes {
    /// The space that deleting the volume would free, without the image and layers shared with forks.
    pub used_bytes: u64,
    /// The space that counts towards the limit: everything that was written for this volume, shared with forks or not,
    /// but nothing that it inherited as a fork.
    pub charged_bytes: u64,
    /// The size that the guest sees.
    pub virtual_bytes: u64,
    pub snapshots: BTreeMap<SnapshotId, SnapshotSizes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSizes {
    /// The space that deleting the snapshot would free.
    pub used_bytes: u64,
    /// The space of everything it needs, shared or not, without the image.
    pub referenced_bytes: u64,
}

/// Operations on volumes. Each workspace has one directory for its volume, which the caller makes.
///
/// A completed operation is durable. An error leaves the volume as it was. After a crash, [`Storage::settle`] brings
/// the volume to the state before or after the operation.
pub trait Storage: Send + Sync {
    /// Makes a disk of `virtual_bytes` with the content of an image, and replaces an existing volume. Returns the
    /// head.
    fn create_from_image(
        &self,
        directory: &Path,
        backing: &Backing,
        virtual_bytes: u64,
    ) -> impl Future<Output = Result<PathBuf, DiskError>> + Send;

    /// Makes a volume with the content of another volume's snapshot, and independent of that volume. Makes the
    /// directory if it is missing. Returns the head.
    fn fork(
        &self,
        source: &Path,
        snapshot: SnapshotId,
        directory: &Path,
    ) -> impl Future<Output = Result<PathBuf, DiskError>> + Send;

    /// The file that the VM writes to.
    fn head(&self, directory: &Path) -> impl Future<Output = Result<PathBuf, DiskError>> + Send;

    /// Prepares a snapshot. The caller then makes a running VM write to the pivot's `to`.
    fn begin_snapshot(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<Pivot, DiskError>> + Send;

    /// Completes the snapshot. The VM has moved to the new head, or is down.
    fn finish_snapshot(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Discards a begun snapshot. The VM has not moved to the new head and never will.
    fn abandon_snapshot(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Takes a volume back to a snapshot. Its VM must be down. Returns the new head.
    fn restore(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<PathBuf, DiskError>> + Send;

    /// Deletes a snapshot, its memory, and every file that only it needed. The space it shared with the layer on top
    /// of it is freed by a merge: see [`Storage::redundant`]. A missing snapshot counts as deleted.
    fn forget_snapshot(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// The possible merges, the lowest first; while a VM runs, only those that do not need it to be down. After each
    /// merge the list must be requested again.
    fn redundant(&self, directory: &Path) -> impl Future<Output = Result<Vec<Merge>, DiskError>> + Send;

    /// Merges two layers that no VM has open. It can be repeated after an interruption.
    fn merge_offline(
        &self,
        directory: &Path,
        merge: &Merge,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Notes a merge before a running VM is told to do it, so that it can be completed after a crash.
    fn begin_merge(
        &self,
        directory: &Path,
        merge: &Merge,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Completes a merge that a running VM has done. The VM has closed `child`.
    fn merged_online(
        &self,
        directory: &Path,
        merge: &Merge,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Makes a keyframe of the layers below the head, if one is due. It copies their data and changes nothing else;
    /// the keyframe is unused until it is adopted. If it is stopped during the copy, it makes none. The caller must
    /// wait for it even then, because it may be past the copy and about to write the record.
    fn keyframe(
        &self,
        directory: &Path,
        due: KeyframeDue,
        stop: &CancellationToken,
    ) -> impl Future<Output = Result<Option<Keyframe>, DiskError>> + Send;

    /// Changes the backing of the layers above to the keyframe, except those that a running VM has switched itself. A
    /// snapshot that was the topmost of the replaced layers becomes the keyframe.
    fn adopt_keyframe(
        &self,
        directory: &Path,
        keyframe: &Keyframe,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Completes or undoes an operation that a crash interrupted. `running_head` is the file that a still running VM
    /// writes to. Snapshots that are not among `known` are removed, and so are unneeded files of ours. If a known
    /// snapshot is missing, nothing is removed.
    fn settle(
        &self,
        directory: &Path,
        running_head: Option<&Path>,
        known: &[SnapshotId],
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    fn sizes(&self, directory: &Path) -> impl Future<Output = Result<VolumeSizes, DiskError>> + Send;

    /// Deletes the volume. A missing one counts as deleted.
    fn delete(&self, directory: &Path) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// The nearest remaining snapshot that the head descends from.
    fn origin(&self, directory: &Path) -> impl Future<Output = Result<Option<SnapshotId>, DiskError>> + Send;

    /// The layers of a snapshot, or of the head, from the topmost down to the image.
    fn chain(
        &self,
        directory: &Path,
        of: Option<SnapshotId>,
    ) -> impl Future<Output = Result<Vec<PathBuf>, DiskError>> + Send;
}
