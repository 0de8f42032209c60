//! Copies of image layers for volumes on another file system.
//!
//! A hard link keeps a layer alive after its image or template was removed. If no link is possible, the file is copied
//! once into a directory beside the one of the volumes, and every volume gets a link to that copy:
//!
//! ```text
//! cache/images/debian/disk.qcow2  ──copy──▶  data/layers/5f1c….qcow2  ──link──▶  data/workspaces/0f8f…/layer0.qcow2
//! ```
//!
//! A copy without links stays for the next volume, and is removed when another copy is made.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use agentiso_sys::files::{self, FileError};
use agentiso_sys::hex;

/// The directory of the copies, beside the one that holds the volumes.
const DIRECTORY: &str = "layers";

/// Gives an image's file a name in a volume's directory, so that the layer outlives the image.
pub(super) fn link(image: &Path, link: &Path) -> Result<(), FileError> {
    match fs::hard_link(image, link) {
        // The image is on another file system, belongs to another user, or has as many links as possible.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::CrossesDevices | io::ErrorKind::PermissionDenied | io::ErrorKind::TooManyLinks
            ) =>
        {
            link_to_copy(image, link)
        }
        made => made.map_err(FileError::at("link", link)),
    }
}

/// Replaces a symbolic link to an image, which earlier versions made, by a link to a copy. A dangling link stays;
/// reading the layer then fails.
pub(super) fn hold(layer: &Path) -> Result<(), FileError> {
    let Ok(image) = fs::read_link(layer) else { return Ok(()) };
    if !image.exists() {
        return Ok(());
    }
    let name = layer.file_name().unwrap_or_default().to_string_lossy();
    let unnamed = layer.with_file_name(format!(".{name}.held"));
    files::remove_file(&unnamed)?;
    link(&image, &unnamed)?;
    fs::rename(&unnamed, layer).map_err(FileError::at("replace", layer))
}

fn link_to_copy(image: &Path, link: &Path) -> Result<(), FileError> {
    let data = link.ancestors().nth(3).unwrap_or(Path::new("/"));
    let dir = data.join(DIRECTORY);
    files::make_private_dir(&dir)?;
    // The lock is held until the volume has its link, because a copy without links may be removed.
    let _lock = lock(&dir)?;
    let copy = dir.join(name_of(image)?);
    if !copy.exists() {
        remove_unused(&dir)?;
        make(image, &copy)?;
    }
    files::link(&copy, link)
}

fn lock(dir: &Path) -> Result<File, FileError> {
    let path = dir.join("lock");
    let open = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    open.and_then(|file| file.lock().map(|()| file)).map_err(FileError::at("lock", &path))
}

/// A name that changes with the file or its content. Images are replaced, never written to.
fn name_of(image: &Path) -> Result<String, FileError> {
    let file = fs::metadata(image).map_err(FileError::at("read", image))?;
    let mut hash = Sha256::new();
    hash.update(image.as_os_str().as_bytes());
    for part in [file.dev(), file.ino(), file.size()] {
        hash.update(part.to_le_bytes());
    }
    for part in [file.mtime(), file.mtime_nsec()] {
        hash.update(part.to_le_bytes());
    }
    Ok(format!("{}.qcow2", hex(&hash.finalize()[..16])))
}

fn make(image: &Path, copy: &Path) -> Result<(), FileError> {
    let unnamed = copy.with_extension("new");
    let made = fs::copy(image, &unnamed)
        .and_then(|_bytes| File::open(&unnamed)?.sync_all())
        .and_then(|()| fs::rename(&unnamed, copy));
    if let Err(source) = made {
        // The error of the copy is the one that matters; the next attempt overwrites the leftover.
        let _ = fs::remove_file(&unnamed);
        return Err(FileError {
            action: "create a copy (on the file system of the workspaces) of",
            path: image.to_owned(),
            source,
        });
    }
    files::sync_dir(copy.parent().unwrap_or(Path::new("/")))
}

/// Removes copies without links, and a copy that was interrupted.
fn remove_unused(dir: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(dir).map_err(FileError::at("read", dir))?.flatten() {
        let path: PathBuf = entry.path();
        let is_ours = path.extension().is_some_and(|kind| kind == "qcow2" || kind == "new");
        if is_ours && entry.metadata().is_ok_and(|file| file.is_file() && file.nlink() == 1) {
            files::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Volumes in one directory, and an image that counts as one on another file system.
    struct Site(tempfile::TempDir);

    impl Site {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for volume in ["a", "b"] {
                fs::create_dir_all(dir.path().join("workspaces").join(volume)).unwrap();
            }
            fs::write(dir.path().join("image"), "disk").unwrap();
            Self(dir)
        }

        fn image(&self) -> PathBuf {
            self.0.path().join("image")
        }

        fn layer(&self, volume: &str) -> PathBuf {
            self.0.path().join("workspaces").join(volume).join("layer0.qcow2")
        }

        fn copies(&self) -> usize {
            let entries = fs::read_dir(self.0.path().join(DIRECTORY)).unwrap().flatten();
            entries.filter(|entry| entry.file_name() != "lock").count()
        }
    }

    #[test]
    fn copy_is_shared_and_outlives_the_image() {
        let site = Site::new();
        link_to_copy(&site.image(), &site.layer("a")).unwrap();
        link_to_copy(&site.image(), &site.layer("b")).unwrap();
        fs::remove_file(site.image()).unwrap();
        assert_eq!(fs::read(site.layer("a")).unwrap(), b"disk");
        let inode = |volume| fs::symlink_metadata(site.layer(volume)).unwrap().ino();
        assert_eq!(inode("a"), inode("b"));
        assert_eq!(site.copies(), 1);
    }

    #[test]
    fn unused_copy_goes_when_another_is_made() {
        let site = Site::new();
        link_to_copy(&site.image(), &site.layer("a")).unwrap();
        fs::remove_file(site.layer("a")).unwrap();
        fs::write(site.image(), "another disk").unwrap();
        link_to_copy(&site.image(), &site.layer("b")).unwrap();
        assert_eq!(fs::read(site.layer("b")).unwrap(), b"another disk");
        assert_eq!(site.copies(), 1);
    }

    #[test]
    fn symbolic_link_becomes_a_file_of_its_own() {
        let site = Site::new();
        std::os::unix::fs::symlink(site.image(), site.layer("a")).unwrap();
        std::os::unix::fs::symlink(site.0.path().join("gone"), site.layer("b")).unwrap();
        hold(&site.layer("a")).unwrap();
        hold(&site.layer("b")).unwrap();
        fs::remove_file(site.image()).unwrap();
        assert_eq!(fs::read(site.layer("a")).unwrap(), b"disk");
        assert!(site.layer("b").is_symlink());
    }

    #[test]
    fn image_on_another_file_system_is_copied() {
        // `/dev/shm` nearly always is another file system; if not, a plain link is right.
        let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else { return };
        let site = Site::new();
        let image = elsewhere.path().join("image");
        fs::write(&image, "far away").unwrap();
        link(&image, &site.layer("a")).unwrap();
        drop(elsewhere);
        assert_eq!(fs::read(site.layer("a")).unwrap(), b"far away");
    }
}
