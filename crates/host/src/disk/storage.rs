//! What a storage backend can do.
//!
//! A *volume* is the disk of one workspace: the state its machine writes to (the *head*) and its snapshots. It
//! lives in a directory of its own, as files that lie on top of each other (*layers*):
//!
//! ```text
//! image ◀── layer ◀── layer ◀── head          a layer is frozen when another is put on it
//!             ▲         ▲
//!          snapshot  snapshot ◀── layer …     a restore, or a fork, puts a fresh layer on a frozen one
//! ```
//!
//! A directory is used by one caller at a time.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};

use agentiso_core::ids::SnapshotId;
use tokio_util::sync::CancellationToken;

use super::error::DiskError;

/// What a new disk is made from: an image, and the layers a template put on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The image's name, for messages.
    pub name: String,
    /// From the lowest layer upwards; each but the first has the one before it as its backing file.
    pub layers: Vec<PathBuf>,
}

/// A snapshot that was begun: the machine is to go on writing to another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pivot {
    /// What it writes to, and what the snapshot will be.
    pub from: PathBuf,
    /// An empty layer on top of `from`.
    pub to: PathBuf,
}

/// A layer that nobody asks for by itself any more, and the one on top of it: one file would do for both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The upper one, which goes.
    pub child: PathBuf,
    /// The lower one, which takes up what is in the upper one.
    pub into: PathBuf,
    /// The layers on top of `child`, to be put on `into`.
    pub above: Vec<PathBuf>,
    /// The machine writes to `child`, and will write to `into`.
    pub child_is_head: bool,
    /// A machine that runs has the two open and must do the merge. One that it has not can be merged as if none ran.
    pub under_head: bool,
}

/// A layer that was made to stand for many, so that a read has less far to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyframe {
    pub file: PathBuf,
    /// The layers whose content it holds, the topmost first. It reads as the topmost does.
    pub replaces: Vec<PathBuf>,
    /// What they lay on, and it lies on.
    pub below: Option<PathBuf>,
    /// The layers on top of those, to be put on the keyframe.
    pub above: Vec<PathBuf>,
    /// The file that a machine writes to is among `above`: one that runs has to be told. What another layer lies on
    /// can be changed under a machine, which goes on reading the old ones until it is started again.
    pub head_is_above: bool,
}

/// When a keyframe is due. A read of 4 KiB through one layer takes 19 µs, through 20 takes 33 µs, through 100 takes
/// 224 µs; and QEMU walks through all of them for every snapshot.
#[derive(Clone, Copy, Debug)]
pub struct KeyframeDue {
    /// So many layers lie on each other.
    pub layers: usize,
    /// The most that is copied: what lies below that stays as it is.
    pub most_bytes: u64,
}

impl KeyframeDue {
    /// While nobody waits.
    pub const AT_REST: Self = Self::after(16);
    /// While snapshots are taken in a row, and copying is done before the next.
    pub const IN_A_ROW: Self = Self { layers: 16, most_bytes: 64 << 20 };

    pub const fn after(layers: usize) -> Self {
        Self { layers, most_bytes: u64::MAX }
    }
}

/// Whose sizes are asked for beside the volume's own: each has to be looked for in the layers' tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizesOf {
    NoSnapshot,
    Snapshot(SnapshotId),
    All,
}

/// A snapshot as the volume's own record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSnapshot {
    pub id: SnapshotId,
    /// The nearest snapshot below it.
    pub parent: Option<SnapshotId>,
    pub has_memory: bool,
    /// It was begun since the volume was last settled, so its caller may never have been told of it.
    pub unconfirmed: bool,
}

/// How large a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSizes {
    /// What it takes on the host and would give back if it were deleted: no image, nothing a fork shares.
    pub used_bytes: u64,
    /// What counts towards its limit: all that was written for it, whether a fork shares it or not, and nothing that it
    /// inherited when it was forked itself.
    pub charged_bytes: u64,
    /// What the guest sees.
    pub virtual_bytes: u64,
    pub snapshots: BTreeMap<SnapshotId, SnapshotSizes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSizes {
    /// What deleting it would give back.
    pub used_bytes: u64,
    /// All it needs, shared or not, without the image.
    pub referenced_bytes: u64,
}

/// One directory per workspace holds its volume. Directories are made by the caller.
///
/// What returned is on disk. An error leaves the volume as it was, and a crash leaves it so that
/// [`Storage::settle`] can bring it to before or after.
pub trait Storage: Send + Sync {
    /// Makes a disk of `virtual_bytes` whose content is the image's, in place of what is there. Returns the head.
    fn create_from_image(
        &self,
        directory: &Path,
        backing: &Backing,
        virtual_bytes: u64,
    ) -> impl Future<Output = Result<PathBuf, DiskError>> + Send;

    /// Makes a volume whose content is that of another's snapshot, of which nothing is needed afterwards. The
    /// directory is made if it is not there. Returns the head.
    fn fork(
        &self,
        source: &Path,
        snapshot: SnapshotId,
        directory: &Path,
    ) -> impl Future<Output = Result<PathBuf, DiskError>> + Send;

    /// The file a machine writes to.
    fn head(&self, directory: &Path) -> impl Future<Output = Result<PathBuf, DiskError>> + Send;

    /// Prepares a snapshot. The machine is then made to write to the pivot's `to`, if there is one.
    fn begin_snapshot(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<Pivot, DiskError>> + Send;

    /// The machine has moved, or is down: the snapshot is taken.
    fn finish_snapshot(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// The machine has not moved, and will not.
    fn abandon_snapshot(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Takes a volume, whose machine is down, back to a snapshot. Returns the new head.
    fn restore(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<PathBuf, DiskError>> + Send;

    /// Drops a snapshot, its memory, and every file that was needed for it only. What it shared with the layer on
    /// top of it comes back by a merge: see [`Storage::redundant`]. One that is not there is as good as dropped.
    fn forget_snapshot(
        &self,
        directory: &Path,
        snapshot: SnapshotId,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Layers that can be merged, the lowest first; with a machine running, those that can be while it does. After each merge the rest must be asked for again.
    fn redundant(&self, directory: &Path) -> impl Future<Output = Result<Vec<Merge>, DiskError>> + Send;

    /// Merges two layers that no machine has open. Can be repeated after it was cut short.
    fn merge_offline(
        &self,
        directory: &Path,
        merge: &Merge,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// To be called before a running machine is told to merge, so that a crash in between can be made good.
    fn begin_merge(
        &self,
        directory: &Path,
        merge: &Merge,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// A running machine has merged two layers and has `child` no longer open.
    fn merged_online(
        &self,
        directory: &Path,
        merge: &Merge,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Makes a keyframe of the layers below the head, if one is due. Copies what
    /// they hold and changes nothing else; until it is adopted, nobody reads it. Stopped while it copies, it makes none; it
    /// is to be waited for all the same, because it may be past that and about to write the record.
    fn keyframe(
        &self,
        directory: &Path,
        due: KeyframeDue,
        stop: &CancellationToken,
    ) -> impl Future<Output = Result<Option<Keyframe>, DiskError>> + Send;

    /// Puts the layers above on the keyframe, except those that a running machine has put there itself, and lets a
    /// snapshot that was the topmost of the replaced layers be the keyframe.
    fn adopt_keyframe(
        &self,
        directory: &Path,
        keyframe: &Keyframe,
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// Finishes or undoes what a crash cut short. `running_head` is the file a machine that still runs writes to;
    /// snapshots that are not among the known ones are dropped, and so is every file of ours that nobody needs. If a
    /// known one is missing, nothing is removed.
    fn settle(
        &self,
        directory: &Path,
        running_head: Option<&Path>,
        known: &[SnapshotId],
    ) -> impl Future<Output = Result<(), DiskError>> + Send;

    fn sizes(&self, directory: &Path) -> impl Future<Output = Result<VolumeSizes, DiskError>> + Send;

    /// Removes the volume. One that is not there is as good as removed.
    fn delete(&self, directory: &Path) -> impl Future<Output = Result<(), DiskError>> + Send;

    /// The nearest snapshot that the head descends from, of those that are left.
    fn origin(&self, directory: &Path) -> impl Future<Output = Result<Option<SnapshotId>, DiskError>> + Send;

    /// The layers of a snapshot, or of the head, from the topmost down to the image.
    fn chain(
        &self,
        directory: &Path,
        of: Option<SnapshotId>,
    ) -> impl Future<Output = Result<Vec<PathBuf>, DiskError>> + Send;
}
