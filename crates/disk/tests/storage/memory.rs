//! A storage backend in memory, for tests that simulate a loss of power.
//!
//! Contents are maps from block to byte. As on a real disk, a changed name is certain only after a sync;
//! [`MemoryStorage::power_loss`] undoes the unsynced changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agentiso_disk::{DiskError, LayerInfo, LayerName, Layers, TreeBytes, VOLUME_FILE};
use agentiso_sys::files::FileError;
use tokio_util::sync::CancellationToken;

/// The size that each block of content counts for.
pub(crate) const BLOCK: u64 = 64 << 10;

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStorage(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The entry that each path names.
    names: BTreeMap<PathBuf, Entry>,
    /// The names that changed since the last sync, with their previous entries; the oldest first.
    unsynced: Vec<(PathBuf, Option<Entry>)>,
    layers: Vec<Layer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Directory,
    Record(String),
    /// An index into `layers`; a layer with several names is shared.
    Layer(usize),
    /// Any other file, with its size in bytes.
    Other(u64),
}

#[derive(Clone, Debug, Default)]
struct Layer {
    backing: Option<LayerName>,
    virtual_bytes: u64,
    blocks: BTreeMap<u64, u8>,
}

impl Layer {
    fn used_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }
}

impl MemoryStorage {
    /// Adds an image, to be used in a `Backing`.
    pub(crate) fn add_image(&self, path: &Path, virtual_bytes: u64, blocks: BTreeMap<u64, u8>) {
        let mut state = self.state();
        state.layers.push(Layer { backing: None, virtual_bytes, blocks });
        let layer = Entry::Layer(state.layers.len() - 1);
        state.names.insert(path.to_owned(), layer);
    }

    /// Adds any other file.
    pub(crate) fn add_file(&self, path: &Path, bytes: u64) {
        let mut state = self.state();
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            state.names.entry(parent.to_owned()).or_insert(Entry::Directory);
        }
        state.names.insert(path.to_owned(), Entry::Other(bytes));
    }

    /// Writes to a layer, as a VM does.
    pub(crate) fn write_block(&self, file: &Path, block: u64, value: u8) -> Result<(), DiskError> {
        let mut state = self.state();
        let layer = state.layer(file)?;
        state.layers[layer].blocks.insert(block, value);
        Ok(())
    }

    /// Reads a block through a file and the layers below it. A block that no layer has is zero.
    pub(crate) fn read_block(&self, file: &Path, block: u64) -> Result<u8, DiskError> {
        let state = self.state();
        let mut path = file.to_owned();
        loop {
            let layer = &state.layers[state.layer(&path)?];
            match (layer.blocks.get(&block), &layer.backing) {
                (Some(value), _) => return Ok(*value),
                (None, None) => return Ok(0),
                (None, Some(backing)) => path.set_file_name(backing.as_str()),
            }
        }
    }

    /// Undoes unsynced changes, except those for which `keep` returns true.
    pub(crate) fn power_loss(&self, mut keep: impl FnMut() -> bool) {
        let mut state = self.state();
        let mut kept = BTreeSet::new();
        for (path, before) in std::mem::take(&mut state.unsynced).into_iter().rev() {
            // If the newest change of a name is kept, its older ones are kept too.
            if kept.contains(&path) || keep() {
                kept.insert(path);
            } else {
                match before {
                    Some(entry) => state.names.insert(path, entry),
                    None => state.names.remove(&path),
                };
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_shared(&self, layer: usize) -> bool {
        self.names.values().filter(|entry| **entry == Entry::Layer(layer)).count() > 1
    }

    fn layer(&self, path: &Path) -> Result<usize, DiskError> {
        match self.names.get(path) {
            Some(Entry::Layer(layer)) => Ok(*layer),
            Some(Entry::Directory | Entry::Record(_) | Entry::Other(_)) | None => {
                Err(DiskError::NoLayer(path.to_owned()))
            }
        }
    }

    fn change(&mut self, path: PathBuf, entry: Option<Entry>) {
        let before = match entry {
            Some(entry) => self.names.insert(path.clone(), entry),
            None => self.names.remove(&path),
        };
        self.unsynced.push((path, before));
    }

    fn inside<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Entry)> {
        self.names.iter().filter(move |(path, _)| path.parent() == Some(directory))
    }

    fn sync(&mut self, directory: &Path) {
        self.unsynced.retain(|(path, _)| path.parent() != Some(directory));
    }
}

impl Layers for MemoryStorage {
    fn load(&self, directory: &Path) -> Result<Option<String>, DiskError> {
        match self.state().names.get(&directory.join(VOLUME_FILE)) {
            Some(Entry::Record(text)) => Ok(Some(text.clone())),
            Some(Entry::Directory | Entry::Layer(_) | Entry::Other(_)) | None => Ok(None),
        }
    }

    fn store(&self, directory: &Path, record: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        state.change(directory.join(VOLUME_FILE), Some(Entry::Record(record.to_owned())));
        state.sync(directory);
        Ok(())
    }

    fn make_directory(&self, directory: &Path) -> Result<bool, DiskError> {
        Ok(self.state().names.insert(directory.to_owned(), Entry::Directory).is_none())
    }

    fn names(&self, directory: &Path) -> Result<Vec<String>, DiskError> {
        let state = self.state();
        let names = state.inside(directory).filter_map(|(path, _)| path.file_name()?.to_str());
        Ok(names.map(str::to_owned).collect())
    }

    fn inspect(&self, directory: &Path, layer: &LayerName) -> Result<Option<LayerInfo>, DiskError> {
        let state = self.state();
        let Ok(index) = state.layer(&layer.in_dir(directory)) else { return Ok(None) };
        let found = &state.layers[index];
        Ok(Some(LayerInfo {
            backing: found.backing.clone(),
            virtual_bytes: found.virtual_bytes,
            used_bytes: found.used_bytes(),
            shared: state.is_shared(index),
        }))
    }

    fn is_open(&self, _directory: &Path, _layer: &LayerName) -> Result<bool, DiskError> {
        Ok(false)
    }

    fn create(
        &self,
        directory: &Path,
        layer: &LayerName,
        backing: &LayerName,
        virtual_bytes: u64,
    ) -> Result<(), DiskError> {
        let mut state = self.state();
        state.layers.push(Layer { backing: Some(backing.clone()), virtual_bytes, blocks: BTreeMap::new() });
        let index = state.layers.len() - 1;
        state.change(layer.in_dir(directory), Some(Entry::Layer(index)));
        Ok(())
    }

    fn adopt(&self, image: &Path, directory: &Path, layer: &LayerName) -> Result<u64, DiskError> {
        let mut state = self.state();
        let index = state.layer(image)?;
        state.change(layer.in_dir(directory), Some(Entry::Layer(index)));
        Ok(state.layers[index].virtual_bytes)
    }

    fn hold(&self, _directory: &Path) -> Result<(), DiskError> {
        Ok(())
    }

    fn link(&self, source: &Path, directory: &Path, layer: &LayerName) -> Result<(), DiskError> {
        let mut state = self.state();
        let index = state.layer(&layer.in_dir(source))?;
        let link = layer.in_dir(directory);
        if state.names.contains_key(&link) {
            return Err(FileError::at("link", &link)(io::ErrorKind::AlreadyExists.into()).into());
        }
        state.change(link, Some(Entry::Layer(index)));
        Ok(())
    }

    fn remove(&self, directory: &Path, name: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        let path = directory.join(name);
        let gone: Vec<PathBuf> =
            state.names.keys().filter(|other| other.starts_with(&path)).cloned().collect();
        for path in gone {
            state.change(path, None);
        }
        Ok(())
    }

    fn sync(&self, directory: &Path) -> Result<(), DiskError> {
        self.state().sync(directory);
        Ok(())
    }

    fn commit(&self, directory: &Path, child: &LayerName, into: &LayerName) -> Result<(), DiskError> {
        let mut state = self.state();
        let (from, to) = (state.layer(&child.in_dir(directory))?, state.layer(&into.in_dir(directory))?);
        let blocks = state.layers[from].blocks.clone();
        state.layers[to].blocks.extend(blocks);
        Ok(())
    }

    fn combine(
        &self,
        directory: &Path,
        layer: &LayerName,
        of: &[LayerName],
        _stop: &CancellationToken,
    ) -> Result<(), DiskError> {
        let mut state = self.state();
        let mut combined = Layer::default();
        for (index, name) in of.iter().rev().enumerate() {
            let found = &state.layers[state.layer(&name.in_dir(directory))?];
            combined.virtual_bytes = found.virtual_bytes;
            combined.blocks.extend(&found.blocks);
            if index == 0 {
                combined.backing.clone_from(&found.backing);
            }
        }
        state.layers.push(combined);
        let index = state.layers.len() - 1;
        state.change(layer.in_dir(directory), Some(Entry::Layer(index)));
        Ok(())
    }

    fn rebase(&self, directory: &Path, layer: &LayerName, backing: &LayerName) -> Result<(), DiskError> {
        let mut state = self.state();
        let index = state.layer(&layer.in_dir(directory))?;
        state.layers[index].backing = Some(backing.clone());
        Ok(())
    }

    fn tree_bytes(&self, directory: &Path, name: &str) -> Result<TreeBytes, DiskError> {
        let state = self.state();
        let path = directory.join(name);
        if let Ok(layer) = state.layer(&path) {
            let all = state.layers[layer].used_bytes();
            let shared = state.is_shared(layer);
            return Ok(TreeBytes { all, unshared: if shared { 0 } else { all } });
        }
        let bytes = state.inside(&path).map(|(_, entry)| match entry {
            Entry::Other(bytes) => *bytes,
            Entry::Directory | Entry::Record(_) | Entry::Layer(_) => 0,
        });
        let all = bytes.sum();
        Ok(TreeBytes { all, unshared: all })
    }

    fn overlap(&self, directory: &Path, child: &LayerName, into: &LayerName) -> Result<u64, DiskError> {
        let state = self.state();
        let blocks = |layer: &LayerName| Ok(&state.layers[state.layer(&layer.in_dir(directory))?].blocks);
        let (upper, lower): (_, Result<_, DiskError>) = (blocks(child)?, blocks(into));
        let lower = lower?;
        Ok(upper.keys().filter(|block| lower.contains_key(block)).count() as u64 * BLOCK)
    }
}
