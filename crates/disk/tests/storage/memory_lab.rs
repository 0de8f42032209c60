//! The lab for the backend in memory.

use std::path::{Path, PathBuf};

use agentiso_disk::{Backing, Layers};

use crate::lab::{Lab, VIRTUAL, image_content};
use crate::memory::MemoryStorage;

pub(crate) struct MemoryLab(MemoryStorage);

impl Lab for MemoryLab {
    type Backend = MemoryStorage;

    fn new() -> Self {
        let storage = MemoryStorage::default();
        storage.add_image(Path::new("/image.qcow2"), VIRTUAL, image_content());
        Self(storage)
    }

    fn backend(&self) -> MemoryStorage {
        self.0.clone()
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = Path::new("/volumes").join(name);
        self.0.make_directory(&path).unwrap();
        path
    }

    fn image(&self) -> Backing {
        Backing { name: "image".to_owned(), layers: vec![PathBuf::from("/image.qcow2")] }
    }

    fn write(&self, file: &Path, block: u64, value: u8) {
        self.0.write_block(file, block, value).unwrap();
    }

    fn read(&self, file: &Path, block: u64) -> u8 {
        self.0.read_block(file, block).unwrap()
    }

    fn add_memory(&self, directory: &Path, name: &str) -> u64 {
        self.0.add_file(&directory.join(name).join("ram"), 4096);
        4096
    }

    fn power_loss(&self, keep: &mut dyn FnMut() -> bool) {
        self.0.power_loss(keep);
    }
}
