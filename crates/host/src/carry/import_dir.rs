//! The directory of an import, which is removed unless the import succeeds.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentiso_disk::{DISK_FILE, VOLUME_FILE};
use agentiso_sys::files::{self, FileError};

/// A directory without a volume. It is removed when the last reference is dropped, unless [`ImportDir::keep`] was called.
#[derive(Debug)]
pub(super) struct ImportDir {
    pub(super) path: PathBuf,
    kept: AtomicBool,
}

impl ImportDir {
    pub(super) fn make(path: &Path) -> Result<Arc<Self>, FileError> {
        if let Some(parent) = path.parent() {
            files::make_private_dir(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(path) {
            // The workspace's description may be written there before the import.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !has_volume(path) => {}
            made => made.map_err(FileError::at("create the directory", path))?,
        }
        Ok(Arc::new(Self { path: path.to_owned(), kept: false.into() }))
    }

    pub(super) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for ImportDir {
    fn drop(&mut self) {
        if !self.kept.load(Ordering::Relaxed)
            && let Err(error) = files::discard_dir(&self.path)
        {
            tracing::warn!(%error, "could not remove the directory of an abandoned import");
        }
    }
}

fn has_volume(path: &Path) -> bool {
    [VOLUME_FILE, DISK_FILE].iter().any(|name| path.join(name).symlink_metadata().is_ok())
}
