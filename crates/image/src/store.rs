//! Finds, lists and removes the images on disk.

use std::fs;
use std::path::{Path, PathBuf};

use agentiso_core::names::ImageName;
use agentiso_sys::files::{FileContext, FileError};

use crate::error::ImageError;
use crate::manifest::{self, ImageManifest, ManifestError};
use crate::progress::silent;
use crate::publish::Slot;
use crate::source::Dirs;

pub(crate) const DISK: &str = "disk.qcow2";

/// A published image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub disk: PathBuf,
    pub manifest: ImageManifest,
}

/// The image of that name.
pub fn get(dirs: &Dirs, name: &ImageName) -> Result<Option<Image>, ImageError> {
    Ok(load(&dirs.images.join(name.as_str()))?)
}

/// All complete images, by name. An image that cannot be read is left out with a warning.
pub fn list(dirs: &Dirs) -> Result<Vec<Image>, ImageError> {
    let entries = match fs::read_dir(&dirs.images) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FileError::new("list", &dirs.images, error).into()),
    };
    let mut images = Vec::new();
    for entry in entries {
        let entry = entry.at("list", &dirs.images)?;
        let is_entry = entry.file_name().to_str().is_some_and(|name| ImageName::parse(name).is_ok());
        if !is_entry {
            continue;
        }
        match load(&entry.path()) {
            Ok(Some(image)) => images.push(image),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(path = %entry.path().display(), %error, "ignoring an unreadable image")
            }
        }
    }
    images.sort_by(|a, b| a.manifest.name.cmp(&b.manifest.name));
    Ok(images)
}

/// Removes an image. `users` names the users of the image; it is called while the image is locked.
pub async fn remove(
    dirs: &Dirs,
    name: &ImageName,
    users: &(dyn Fn(&ImageName) -> Vec<String> + Send + Sync),
) -> Result<(), ImageError> {
    let missing = || ImageError::NotFound { name: name.as_str().to_owned() };
    if !dirs.images.join(name.as_str()).is_dir() {
        return Err(missing());
    }
    let slot = Slot::acquire(&dirs.images, name.as_str(), &silent).await?;
    if !slot.destination().is_dir() {
        return Err(missing());
    }
    refuse_in_use(name, users)?;
    Ok(slot.withdraw()?)
}

pub(crate) fn refuse_in_use(
    name: &ImageName,
    users: &(dyn Fn(&ImageName) -> Vec<String> + Send + Sync),
) -> Result<(), ImageError> {
    let users = users(name);
    if users.is_empty() {
        return Ok(());
    }
    Err(ImageError::InUse { name: name.as_str().to_owned(), users: users.join(", ") })
}

/// Loads an entry, if it is complete.
pub(crate) fn load(path: &Path) -> Result<Option<Image>, ManifestError> {
    let Some(manifest) = manifest::read::<ImageManifest>(path)? else { return Ok(None) };
    let disk = path.join(DISK);
    let whole = manifest
        .files
        .get(DISK)
        .is_some_and(|file| fs::metadata(&disk).is_ok_and(|metadata| metadata.len() == file.bytes));
    Ok(whole.then_some(Image { disk, manifest }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs_with_image(base: &Path) -> Dirs {
        let entry = base.join("images/debian-minimal");
        fs::create_dir_all(&entry).unwrap();
        let manifest = include_str!("../tests/fixtures/image-manifest-v1.json").replace("270401536", "4");
        fs::write(entry.join("manifest.json"), manifest).unwrap();
        fs::write(entry.join(DISK), "disk").unwrap();
        Dirs { images: base.join("images"), kernels: base.join("kernels"), initramfs: base.join("initramfs") }
    }

    #[tokio::test]
    async fn image_in_use_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs_with_image(dir.path());
        let name = ImageName::parse("debian-minimal").unwrap();
        let error = remove(&dirs, &name, &|_| vec!["web".to_owned()]).await.unwrap_err();
        assert!(error.to_string().contains("in use by web"), "{error}");
        assert!(get(&dirs, &name).unwrap().is_some());
        remove(&dirs, &name, &|_| Vec::new()).await.unwrap();
        assert!(get(&dirs, &name).unwrap().is_none());
        let again = remove(&dirs, &name, &|_| Vec::new()).await.unwrap_err();
        assert!(matches!(again, ImageError::NotFound { .. }), "{again}");
    }

    #[test]
    fn incomplete_image_is_not_listed() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs_with_image(dir.path());
        assert_eq!(list(&dirs).unwrap().len(), 1);
        fs::create_dir(dirs.images.join("@build.other")).unwrap();
        fs::write(dirs.images.join("debian-minimal").join(DISK), "cut short").unwrap();
        assert_eq!(list(&dirs).unwrap().len(), 0);
    }
}
