//! What a storage backend can do.

use std::future::Future;
use std::path::{Path, PathBuf};

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
}

/// How large a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSizes {
    /// What it takes on the host, without the image below it.
    pub used_bytes: u64,
    /// What the guest sees.
    pub virtual_bytes: u64,
}

/// What a new disk is made from: an image, and the layers a template put on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The image's name, for messages.
    pub name: String,
    /// From the lowest layer upwards; each but the first has the one before it as its backing file.
    pub layers: Vec<PathBuf>,
}

/// One directory per workspace holds its disk. Directories are made by the caller.
pub trait Storage: Send + Sync {
    /// Makes a disk of `virtual_bytes` whose content is the image's. Leaves nothing behind on an error.
    fn create_from_image(
        &self,
        directory: &Path,
        backing: &Backing,
        virtual_bytes: u64,
    ) -> impl Future<Output = Result<PathBuf, DiskError>> + Send;

    /// Removes the disk. One that is not there is as good as removed.
    fn delete(&self, directory: &Path) -> impl Future<Output = Result<(), DiskError>> + Send;

    fn sizes(&self, directory: &Path) -> impl Future<Output = Result<DiskSizes, DiskError>> + Send;
}
