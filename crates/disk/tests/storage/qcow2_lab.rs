//! The lab for the backend that keeps layers in qcow2 files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agentiso_disk::qcow2_header::create_overlay;
use agentiso_disk::{Backing, Qcow2Storage};

use crate::lab::{Lab, VIRTUAL, image_content};
use crate::qcow2_file::Qcow2;

pub(crate) struct Qcow2Lab(tempfile::TempDir);

impl Lab for Qcow2Lab {
    type Backend = Qcow2Storage;

    fn new() -> Self {
        // Uses memory if possible, because every step waits for the disk, which is not tested here.
        let shared_memory = Path::new("/dev/shm");
        let root = match shared_memory.is_dir() {
            true => tempfile::tempdir_in(shared_memory),
            false => tempfile::tempdir(),
        };
        let root = root.unwrap();
        let image = root.path().join("image.qcow2");
        // An image has no backing, so its missing blocks are written as zeroes.
        create_overlay(&image, "none", VIRTUAL).unwrap();
        for block in 0..crate::lab::BLOCKS {
            let value = image_content().get(&block).copied().unwrap_or(0);
            Qcow2::open(&image).write(cluster(block), value);
        }
        Self(root)
    }

    fn backend(&self) -> Qcow2Storage {
        Qcow2Storage
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn image(&self) -> Backing {
        Backing { name: "image".to_owned(), layers: vec![self.0.path().join("image.qcow2")] }
    }

    fn write(&self, file: &Path, block: u64, value: u8) {
        Qcow2::open(file).write(cluster(block), value);
    }

    fn read(&self, file: &Path, block: u64) -> u8 {
        Qcow2::open(file).read(cluster(block))
    }

    fn add_memory(&self, directory: &Path, name: &str) -> u64 {
        fs::create_dir(directory.join(name)).unwrap();
        let ram = directory.join(name).join("ram");
        fs::write(&ram, vec![1; 100_000]).unwrap();
        ram.metadata().unwrap().blocks() * 512
    }

    fn power_loss(&self, _keep: &mut dyn FnMut() -> bool) {}
}

/// Puts eight blocks into each of the first L2 tables.
fn cluster(block: u64) -> u64 {
    block % 8 + block / 8 * 8192
}
