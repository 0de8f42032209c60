//! Tests of volumes in qcow2 files: the files after each operation.

use super::*;
use crate::{Backing, DISK_FILE, Storage};

fn image(dir: &Path, gib: u64) -> Backing {
    let path = dir.join("image.qcow2");
    create_overlay(&path, "unused", gib << 30).unwrap();
    Backing { name: "debian".to_owned(), layers: vec![path] }
}

#[tokio::test]
async fn new_disk_has_requested_size_and_uses_little() {
    let dir = tempfile::tempdir().unwrap();
    let backing = image(dir.path(), 1);
    let disk = Qcow2Storage.create_from_image(dir.path(), &backing, 10 << 30).await.unwrap();
    assert_eq!(disk, dir.path().join(DISK_FILE));
    let sizes = Qcow2Storage.sizes(dir.path()).await.unwrap();
    assert_eq!(sizes.virtual_bytes, 10 << 30);
    assert!(sizes.used_bytes <= 256 << 10, "{sizes:?}");
}

#[tokio::test]
async fn disk_smaller_than_its_image_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    let backing = image(dir.path(), 4);
    let error = Qcow2Storage.create_from_image(work.path(), &backing, 2 << 30).await.unwrap_err();
    assert_eq!(error.to_string(), "a disk of 2 GiB is too small: the image debian needs 4 GiB");
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn disk_survives_image_removal_and_deletes_completely() {
    let dir = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    let backing = image(dir.path(), 1);
    Qcow2Storage.create_from_image(work.path(), &backing, 1 << 30).await.unwrap();
    fs::remove_file(&backing.layers[0]).unwrap();
    assert!(Header::read(&work.path().join("layer0.qcow2")).is_ok());
    Qcow2Storage.delete(work.path()).await.unwrap();
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    Qcow2Storage.delete(work.path()).await.unwrap();
}

#[tokio::test]
async fn missing_image_error_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let backing = Backing { name: "x".to_owned(), layers: vec![dir.path().join("none.qcow2")] };
    let error = Qcow2Storage.create_from_image(dir.path(), &backing, 1 << 30).await.unwrap_err();
    assert!(error.to_string().contains("none.qcow2"), "{error}");
}

#[tokio::test]
async fn workspace_without_a_record_is_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    let backing = image(dir.path(), 1);
    let disk = Qcow2Storage.create_from_image(work.path(), &backing, 2 << 30).await.unwrap();
    fs::remove_file(work.path().join(VOLUME_FILE)).unwrap();
    assert_eq!(Qcow2Storage.head(work.path()).await.unwrap(), disk);
    Qcow2Storage.settle(work.path(), None, &[]).await.unwrap();
    assert_eq!(Qcow2Storage.sizes(work.path()).await.unwrap().virtual_bytes, 2 << 30);
    // A file with a second link is not a disk to write to.
    fs::hard_link(&disk, dir.path().join("elsewhere")).unwrap();
    let error = Qcow2Storage.head(work.path()).await.unwrap_err();
    assert!(matches!(error, DiskError::NoVolume(_)), "{error}");
}

#[tokio::test]
async fn abandoned_volume_creation_leaves_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let backing = image(dir.path(), 1);
    let mut made = Box::pin(Qcow2Storage.create_from_image(&work, &backing, 1 << 30));
    let first = futures::poll!(&mut made);
    drop(made);
    if first.is_ready() {
        return;
    }
    let gone = async {
        while work.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), gone).await.unwrap();
}

#[tokio::test]
async fn foreign_backing_name_costs_no_layer() {
    let dir = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    let disk = Qcow2Storage.create_from_image(work.path(), &image(dir.path(), 1), 1 << 30).await.unwrap();
    // A guest that has taken over its QEMU could do this.
    fs::remove_file(&disk).unwrap();
    create_overlay(&disk, "/etc/passwd", 1 << 30).unwrap();
    let error = Qcow2Storage.settle(work.path(), None, &[]).await.unwrap_err();
    assert!(matches!(error, DiskError::Outside { .. }), "{error}");
    assert!(work.path().join("layer0.qcow2").exists());
}
