//! The storage backend that keeps layers as qcow2 files.
//!
//! A workspace's directory holds its own layers and a hard link to every layer below them. Layers refer to each other
//! by bare names only:
//!
//! ```text
//! 6f0c….qcow2 ──▶ disk.qcow2 ──▶ layer1.qcow2 ──▶ layer0.qcow2
//! ```
//!
//! So a volume keeps working when its image is removed or rebuilt, a template is pruned, or the workspace it was
//! forked from is destroyed. The space of a layer is freed when its last link is gone. An image on another file system
//! cannot be linked: see [`copies`].

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agentiso_core::ids::SnapshotId;
use agentiso_sys::files::{self, FileError};
use agentiso_vm::{DiskSnapshot, SizesOf, VolumeSizes};
use tokio_util::sync::CancellationToken;

use super::copies;
use super::engine;
use super::error::DiskError;
use super::graph::LayerInfo;
use super::layer_name::LayerName;
use super::layers::{Layers, TreeBytes};
use super::qcow2_commit::{combine, commit};
use super::qcow2_header::{Header, HeaderError, change_backing, create_overlay};
use super::qcow2_lock::is_open;
use super::qcow2_map::Map;
use super::volume::VOLUME_FILE;

#[derive(Clone, Copy, Debug, Default)]
pub struct Qcow2Storage;

impl Qcow2Storage {
    /// The blocking form of [`Storage::sizes`](super::Storage::sizes).
    pub fn sizes_now(directory: &Path, of: SizesOf) -> Result<VolumeSizes, DiskError> {
        engine::sizes(&Self, directory, of)
    }

    /// The blocking form of [`Storage::origin`](super::Storage::origin).
    pub fn origin_now(directory: &Path) -> Result<Option<SnapshotId>, DiskError> {
        engine::origin(&Self, directory)
    }

    /// The snapshots in a volume's record, parents first. This call blocks.
    pub fn listed_now(directory: &Path) -> Result<Vec<DiskSnapshot>, DiskError> {
        engine::listed(&Self, directory)
    }
}

impl Layers for Qcow2Storage {
    fn load(&self, directory: &Path) -> Result<Option<String>, DiskError> {
        let path = directory.join(VOLUME_FILE);
        Ok(found(fs::read_to_string(&path)).map_err(FileError::at("read", &path))?)
    }

    fn store(&self, directory: &Path, record: &str) -> Result<(), DiskError> {
        Ok(files::write_durably(&directory.join(VOLUME_FILE), record.as_bytes())?)
    }

    fn make_directory(&self, directory: &Path) -> Result<bool, DiskError> {
        let there = directory.is_dir();
        files::make_private_dir(directory)?;
        Ok(!there)
    }

    fn names(&self, directory: &Path) -> Result<Vec<String>, DiskError> {
        let failed = || FileError::at("read the directory", directory);
        let Some(entries) = found(fs::read_dir(directory)).map_err(failed())? else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not UTF-8 is not one of ours.
            names.extend(entry.map_err(failed())?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn inspect(&self, directory: &Path, layer: &LayerName) -> Result<Option<LayerInfo>, DiskError> {
        let path = layer.in_dir(directory);
        let failed = || FileError::at("read", &path);
        let Some(entry) = found(path.symlink_metadata()).map_err(failed())? else { return Ok(None) };
        let file = match entry.is_symlink() {
            true => path.metadata().map_err(failed())?,
            false => entry.clone(),
        };
        let header = read_header(&path)?;
        // A guest that has taken over its QEMU can write any name there. If such a name counted as no backing, the
        // chain would be cut and the layers below would look unneeded.
        let backing = match header.backing_file {
            None => None,
            Some(on) => match LayerName::parse(&on) {
                Some(name) => Some(name),
                // No VM writes to an image. QEMU reports an image that cannot be used.
                None if !layer.is_own() => None,
                None => return Err(DiskError::Outside { layer: path, on }),
            },
        };
        Ok(Some(LayerInfo {
            backing,
            virtual_bytes: header.virtual_size,
            used_bytes: used(&file),
            shared: entry.is_symlink() || file.nlink() > 1,
        }))
    }

    fn is_open(&self, directory: &Path, layer: &LayerName) -> Result<bool, DiskError> {
        let path = layer.in_dir(directory);
        let failed = || FileError::at("check whether a VM has open", &path);
        let file = File::open(&path).map_err(failed())?;
        Ok(is_open(&file).map_err(failed())?)
    }

    fn create(
        &self,
        directory: &Path,
        layer: &LayerName,
        backing: &LayerName,
        virtual_bytes: u64,
    ) -> Result<(), DiskError> {
        let path = layer.in_dir(directory);
        let unnamed = directory.join(format!(".{layer}.new"));
        named(&unnamed, &path, create_overlay(&unnamed, backing.as_str(), virtual_bytes))
    }

    fn adopt(&self, image: &Path, directory: &Path, layer: &LayerName) -> Result<u64, DiskError> {
        let size = read_header(image)?.virtual_size;
        copies::link(image, &layer.in_dir(directory))?;
        Ok(size)
    }

    fn hold(&self, directory: &Path) -> Result<(), DiskError> {
        for name in self.names(directory)? {
            if LayerName::parse(&name).is_some_and(|layer| layer.is_image()) {
                copies::hold(&directory.join(name))?;
            }
        }
        Ok(())
    }

    fn link(&self, source: &Path, directory: &Path, layer: &LayerName) -> Result<(), DiskError> {
        Ok(files::link(&layer.in_dir(source), &layer.in_dir(directory))?)
    }

    fn remove(&self, directory: &Path, name: &str) -> Result<(), DiskError> {
        let path = directory.join(name);
        match path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            true => Ok(files::remove_dir(&path)?),
            false => Ok(files::remove_file(&path)?),
        }
    }

    fn sync(&self, directory: &Path) -> Result<(), DiskError> {
        Ok(files::sync_dir(directory)?)
    }

    fn commit(&self, directory: &Path, child: &LayerName, into: &LayerName) -> Result<(), DiskError> {
        let path = into.in_dir(directory);
        commit(&child.in_dir(directory), &path).map_err(|source| DiskError::Format { path, source })
    }

    fn combine(
        &self,
        directory: &Path,
        layer: &LayerName,
        of: &[LayerName],
        stop: &CancellationToken,
    ) -> Result<(), DiskError> {
        let path = layer.in_dir(directory);
        let unnamed = directory.join(format!(".{layer}.new"));
        let of: Vec<PathBuf> = of.iter().map(|layer| layer.in_dir(directory)).collect();
        named(&unnamed, &path, combine(&of, &unnamed, stop))
    }

    fn rebase(&self, directory: &Path, layer: &LayerName, backing: &LayerName) -> Result<(), DiskError> {
        let path = layer.in_dir(directory);
        change_backing(&path, backing.as_str()).map_err(|source| DiskError::Format { path, source })
    }

    fn tree_bytes(&self, directory: &Path, name: &str) -> Result<TreeBytes, DiskError> {
        let path = directory.join(name);
        let failed = || FileError::at("read", &path);
        let mut bytes = TreeBytes::default();
        let mut count = |meta: &fs::Metadata| {
            bytes.all += used(meta);
            bytes.unshared += if meta.nlink() > 1 { 0 } else { used(meta) };
        };
        match found(path.symlink_metadata()).map_err(failed())? {
            Some(meta) if meta.is_dir() => {
                for entry in fs::read_dir(&path).map_err(failed())? {
                    // A file that is removed meanwhile takes no space.
                    let meta = found(entry.and_then(|entry| entry.metadata())).map_err(failed())?;
                    meta.iter().for_each(&mut count);
                }
            }
            file => file.iter().for_each(&mut count),
        }
        Ok(bytes)
    }

    fn overlap(&self, directory: &Path, child: &LayerName, into: &LayerName) -> Result<u64, DiskError> {
        let map = |layer: &LayerName| {
            let path = layer.in_dir(directory);
            let read = File::open(&path).map_err(HeaderError::from).and_then(|file| Map::read(&file));
            read.map_err(|source| DiskError::Format { path, source })
        };
        Ok(map(child)?.bytes_hidden_in(&map(into)?))
    }
}

fn read_header(path: &Path) -> Result<Header, DiskError> {
    Header::read(path).map_err(|source| DiskError::Format { path: path.to_owned(), source })
}

/// Makes a file durable and gives it its name. On an error, the file is removed.
fn named(unnamed: &Path, path: &Path, made: Result<(), HeaderError>) -> Result<(), DiskError> {
    let named = made
        .and_then(|()| Ok(File::open(unnamed)?.sync_all()?))
        .and_then(|()| Ok(fs::rename(unnamed, path)?));
    named.map_err(|source| {
        let _ = fs::remove_file(unnamed);
        DiskError::Format { path: path.to_owned(), source }
    })
}

/// `None` if it does not exist.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn used(meta: &fs::Metadata) -> u64 {
    meta.blocks() * 512
}

#[cfg(test)]
#[path = "qcow2_tests.rs"]
mod tests;
