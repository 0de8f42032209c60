//! Disks as qcow2 overlays.
//!
//! A workspace's directory holds its overlay and a second name (a hard link) for every layer below it, and the
//! layers refer to each other by name only:
//!
//! ```text
//! disk.qcow2 ──▶ layer1.qcow2 ──▶ layer0.qcow2
//! ```
//!
//! So removing or rebuilding an image, or pruning a template, never takes the ground from under a workspace; the
//! space is freed when its last user is gone.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::qcow2_header::{Header, create_overlay};
use super::storage::{Backing, DiskError, DiskSizes, Storage};
use crate::files::{self, FileError};

/// The overlay's name in a workspace's directory.
pub const DISK_FILE: &str = "disk.qcow2";

/// The name under which layer `index` is found beside the overlay. A template's disk is made with the same
/// names, which is what makes its backing reference hold in every directory.
pub(crate) fn layer_file(index: usize) -> String {
    format!("layer{index}.qcow2")
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Qcow2Storage;

impl Qcow2Storage {
    /// The disk's sizes; a plain function because it reads one cluster and one inode.
    pub fn sizes_now(directory: &Path) -> Result<DiskSizes, DiskError> {
        let path = directory.join(DISK_FILE);
        let meta = path.metadata().map_err(FileError::at("read", &path))?;
        let header = read_header(&path)?;
        Ok(DiskSizes { used_bytes: meta.blocks() * 512, virtual_bytes: header.virtual_size })
    }

    fn remove(directory: &Path) -> Result<(), DiskError> {
        files::remove_file(&directory.join(DISK_FILE))?;
        let mut index = 0;
        while directory.join(layer_file(index)).symlink_metadata().is_ok() {
            files::remove_file(&directory.join(layer_file(index)))?;
            index += 1;
        }
        Ok(())
    }

    fn make(directory: &Path, backing: &Backing, virtual_bytes: u64) -> Result<PathBuf, DiskError> {
        // An earlier attempt in this directory may have been made from other layers.
        Self::remove(directory)?;
        let mut made = Undo::default();
        let mut needed = 0;
        for (index, layer) in backing.layers.iter().enumerate() {
            needed = needed.max(read_header(layer)?.virtual_size);
            let link = directory.join(layer_file(index));
            files::link_or_point(layer, &link)?;
            made.0.push(link);
        }
        if virtual_bytes < needed {
            return Err(DiskError::TooSmall {
                image: backing.name.clone(),
                wanted_gib: virtual_bytes >> 30,
                needed_gib: needed.div_ceil(1 << 30),
            });
        }
        let path = directory.join(DISK_FILE);
        made.0.push(path.clone());
        let top = layer_file(backing.layers.len().saturating_sub(1));
        create_overlay(&path, &top, virtual_bytes)
            .map_err(|source| DiskError::Format { path: path.clone(), source })?;
        made.keep();
        Ok(path)
    }
}

impl Storage for Qcow2Storage {
    async fn create_from_image(
        &self,
        directory: &Path,
        backing: &Backing,
        virtual_bytes: u64,
    ) -> Result<PathBuf, DiskError> {
        // A few links and one small write: cheaper than handing them to another thread.
        Self::make(directory, backing, virtual_bytes)
    }

    async fn delete(&self, directory: &Path) -> Result<(), DiskError> {
        Self::remove(directory)
    }

    async fn sizes(&self, directory: &Path) -> Result<DiskSizes, DiskError> {
        Self::sizes_now(directory)
    }
}

fn read_header(path: &Path) -> Result<Header, DiskError> {
    Header::read(path).map_err(|source| DiskError::Format { path: path.to_owned(), source })
}

/// Removes what was made unless it is kept.
#[derive(Default)]
struct Undo(Vec<PathBuf>);

impl Undo {
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = files::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(dir: &Path, gib: u64) -> Backing {
        let path = dir.join("image.qcow2");
        create_overlay(&path, "unused", gib << 30).unwrap();
        Backing { name: "debian".to_owned(), layers: vec![path] }
    }

    #[tokio::test]
    async fn a_disk_has_the_size_that_was_asked_for_and_uses_next_to_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let backing = image(dir.path(), 1);
        let disk = Qcow2Storage.create_from_image(dir.path(), &backing, 10 << 30).await.unwrap();
        assert_eq!(disk, dir.path().join(DISK_FILE));
        let sizes = Qcow2Storage.sizes(dir.path()).await.unwrap();
        assert_eq!(sizes.virtual_bytes, 10 << 30);
        assert!(sizes.used_bytes <= 256 << 10, "{sizes:?}");
    }

    #[tokio::test]
    async fn a_disk_smaller_than_its_image_is_refused_in_words_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let work = tempfile::tempdir().unwrap();
        let backing = image(dir.path(), 4);
        let error = Qcow2Storage.create_from_image(work.path(), &backing, 2 << 30).await.unwrap_err();
        assert_eq!(error.to_string(), "a disk of 2 GiB is too small: the image debian needs 4 GiB");
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_disk_survives_the_removal_of_its_image_and_delete_removes_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let work = tempfile::tempdir().unwrap();
        let backing = image(dir.path(), 1);
        Qcow2Storage.create_from_image(work.path(), &backing, 1 << 30).await.unwrap();
        std::fs::remove_file(&backing.layers[0]).unwrap();
        assert!(Header::read(&work.path().join("layer0.qcow2")).is_ok());
        Qcow2Storage.delete(work.path()).await.unwrap();
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
        Qcow2Storage.delete(work.path()).await.unwrap();
    }

    #[tokio::test]
    async fn a_missing_image_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let backing = Backing { name: "x".to_owned(), layers: vec![dir.path().join("none.qcow2")] };
        let error = Qcow2Storage.create_from_image(dir.path(), &backing, 1 << 30).await.unwrap_err();
        assert!(error.to_string().contains("none.qcow2"), "{error}");
    }
}
