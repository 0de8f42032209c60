//! The errors of operations on volumes.

use std::path::PathBuf;

use agentiso_core::ids::SnapshotId;
use agentiso_sys::files::FileError;
use thiserror::Error;

use super::qcow2_header::HeaderError;

#[derive(Debug, Error)]
pub enum DiskError {
    #[error("a disk of {wanted_gib} GiB is too small: the image {image} needs {needed_gib} GiB")]
    TooSmall { image: String, wanted_gib: u64, needed_gib: u64 },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot use {} as a disk: {source}", path.display())]
    Format { path: PathBuf, source: HeaderError },
    #[error("there is no disk in {}", .0.display())]
    NoVolume(PathBuf),
    #[error("{} is not a valid volume record: {reason}", path.display())]
    Record { path: PathBuf, reason: String },
    #[error(
        "{} is missing, and only it records how {layers} more layers belong together; nothing was changed; restore it \
         from a backup",
        path.display()
    )]
    RecordLost { path: PathBuf, layers: usize },
    #[error(
        "{} is outdated or damaged: it lacks the snapshot {snapshot} of the ledger and {layers} layers beside it; nothing was \
         changed; restore the latest one from a backup",
        path.display()
    )]
    RecordBehind { path: PathBuf, snapshot: SnapshotId, layers: usize },
    #[error("the layer {} of the disk is missing", .0.display())]
    NoLayer(PathBuf),
    #[error("the layer {} has the backing file {on:?}, which is not a layer of the workspace", layer.display())]
    Outside { layer: PathBuf, on: String },
    #[error("the layers of the disk in {} refer to each other in a circle", .0.display())]
    Circle(PathBuf),
    #[error("the disk in {} has no snapshot {snapshot}", directory.display())]
    NoSnapshot { directory: PathBuf, snapshot: SnapshotId },
    #[error("the disk in {} already has the snapshot {snapshot}", directory.display())]
    SnapshotExists { directory: PathBuf, snapshot: SnapshotId },
    #[error("the snapshot {snapshot} of the disk in {} was started, but neither finished nor cancelled", directory.display())]
    Pivoting { directory: PathBuf, snapshot: SnapshotId },
    #[error("the snapshot {snapshot} of the disk in {} was not started", directory.display())]
    NotPivoting { directory: PathBuf, snapshot: SnapshotId },
    #[error("the VM writes to {}, but the head of its disk is {}", running.display(), head.display())]
    OtherHead { running: PathBuf, head: PathBuf },
    #[error("{} cannot be merged into the layer below it", .0.display())]
    NotRedundant(PathBuf),
    #[error("{} is not a keyframe that waits to be adopted", .0.display())]
    NoKeyframe(PathBuf),
}

impl DiskError {
    /// Whether another attempt may succeed although nothing is changed.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Format { source, .. } => source.is_passing(),
            Self::TooSmall { .. }
            | Self::NoVolume(_)
            | Self::Record { .. }
            | Self::RecordLost { .. }
            | Self::RecordBehind { .. }
            | Self::NoLayer(_)
            | Self::Outside { .. }
            | Self::Circle(_)
            | Self::NoSnapshot { .. }
            | Self::SnapshotExists { .. }
            | Self::Pivoting { .. }
            | Self::NotPivoting { .. }
            | Self::OtherHead { .. }
            | Self::NotRedundant(_)
            | Self::NoKeyframe(_) => false,
        }
    }

    pub fn is_out_of_space(&self) -> bool {
        match self {
            Self::File(error) => error.is_out_of_space(),
            Self::Format { source, .. } => source.is_out_of_space(),
            Self::TooSmall { .. }
            | Self::NoVolume(_)
            | Self::Record { .. }
            | Self::RecordLost { .. }
            | Self::RecordBehind { .. }
            | Self::NoLayer(_)
            | Self::Outside { .. }
            | Self::Circle(_)
            | Self::NoSnapshot { .. }
            | Self::SnapshotExists { .. }
            | Self::Pivoting { .. }
            | Self::NotPivoting { .. }
            | Self::OtherHead { .. }
            | Self::NotRedundant(_)
            | Self::NoKeyframe(_) => false,
        }
    }
}
