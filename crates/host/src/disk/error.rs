//! Why something could not be done with a volume.

use std::path::PathBuf;

use agentiso_core::ids::SnapshotId;
use thiserror::Error;

use super::qcow2_header::HeaderError;
use crate::files::FileError;

#[derive(Debug, Error)]
pub enum DiskError {
    #[error("a disk of {wanted_gib} GiB is too small: the image {image} needs {needed_gib} GiB")]
    TooSmall { image: String, wanted_gib: u64, needed_gib: u64 },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is not a disk we can use: {source}", path.display())]
    Format { path: PathBuf, source: HeaderError },
    #[error("there is no disk in {}", .0.display())]
    NoVolume(PathBuf),
    #[error("{} describes no volume: {reason}", path.display())]
    Record { path: PathBuf, reason: String },
    #[error(
        "{} is missing, and only it says how {layers} layers beside the first belong together; nothing was changed: put it \
         back from a backup",
        path.display()
    )]
    RecordLost { path: PathBuf, layers: usize },
    #[error(
        "{} does not have the snapshot {snapshot}, which is listed, and names none of {layers} layers beside it: it is older \
         than they are, or damaged; nothing was changed: put the last one back from a backup",
        path.display()
    )]
    RecordBehind { path: PathBuf, snapshot: SnapshotId, layers: usize },
    #[error("the disk lacks its layer {}", .0.display())]
    NoLayer(PathBuf),
    #[error("the layer {} stands on {on:?}, which is not among the workspace's layers", layer.display())]
    Outside { layer: PathBuf, on: String },
    #[error("the layers of the disk in {} refer to each other in a circle", .0.display())]
    Circle(PathBuf),
    #[error("the disk in {} has no snapshot {snapshot}", directory.display())]
    NoSnapshot { directory: PathBuf, snapshot: SnapshotId },
    #[error("the disk in {} has the snapshot {snapshot} already", directory.display())]
    SnapshotExists { directory: PathBuf, snapshot: SnapshotId },
    #[error("the snapshot {snapshot} of the disk in {} was begun and neither finished nor abandoned", directory.display())]
    Pivoting { directory: PathBuf, snapshot: SnapshotId },
    #[error("the snapshot {snapshot} of the disk in {} was not begun", directory.display())]
    NotPivoting { directory: PathBuf, snapshot: SnapshotId },
    #[error("the machine writes to {}, but its disk is {}", running.display(), head.display())]
    OtherHead { running: PathBuf, head: PathBuf },
    #[error("{} cannot be merged into the layer below it", .0.display())]
    NotRedundant(PathBuf),
    #[error("{} is not a keyframe that waits to be adopted", .0.display())]
    NoKeyframe(PathBuf),
}

impl DiskError {
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
