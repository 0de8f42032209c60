//! The elementary steps of all operations on volumes: the interface between the decisions in [`engine`](super::engine)
//! and a storage backend.
//!
//! Each step is done completely or not at all. Content is durable when a step returns. A new or removed name is
//! durable after [`Layers::sync`] or [`Layers::store`].

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::error::DiskError;
use super::graph::LayerInfo;
use super::layer_name::LayerName;

pub trait Layers: Clone + Send + Sync + 'static {
    /// Reads the volume's record; `None` if there is none.
    fn load(&self, directory: &Path) -> Result<Option<String>, DiskError>;

    /// Replaces the volume's record.
    fn store(&self, directory: &Path, record: &str) -> Result<(), DiskError>;

    /// Makes a directory for a volume, and returns whether there was none.
    fn make_directory(&self, directory: &Path) -> Result<bool, DiskError>;

    /// The names of all entries of a directory. A missing directory has none.
    fn names(&self, directory: &Path) -> Result<Vec<String>, DiskError>;

    /// The properties of a layer; `None` if it does not exist.
    fn inspect(&self, directory: &Path, layer: &LayerName) -> Result<Option<LayerInfo>, DiskError>;

    /// Whether a VM has a layer open, as far as that can be told.
    fn is_open(&self, directory: &Path, layer: &LayerName) -> Result<bool, DiskError>;

    /// Makes an empty layer on top of another.
    fn create(
        &self,
        directory: &Path,
        layer: &LayerName,
        backing: &LayerName,
        virtual_bytes: u64,
    ) -> Result<(), DiskError>;

    /// Gives an image's file a name in the directory, and returns its virtual size.
    fn adopt(&self, image: &Path, directory: &Path, layer: &LayerName) -> Result<u64, DiskError>;

    /// Makes sure that no layer vanishes together with the image it came from.
    fn hold(&self, directory: &Path) -> Result<(), DiskError>;

    /// Links a layer of another volume into the directory, under the same name.
    fn link(&self, source: &Path, directory: &Path, layer: &LayerName) -> Result<(), DiskError>;

    /// Removes a file, or a directory with its content. A missing one counts as removed.
    fn remove(&self, directory: &Path, name: &str) -> Result<(), DiskError>;

    fn sync(&self, directory: &Path) -> Result<(), DiskError>;

    /// Writes the data of a layer into the one below it. Seen through `child`, the content never changes.
    fn commit(&self, directory: &Path, child: &LayerName, into: &LayerName) -> Result<(), DiskError>;

    /// Makes a layer with the combined data of several layers, given from the topmost down. Its backing is that of the
    /// lowest one. Returns early with an error when it is stopped.
    fn combine(
        &self,
        directory: &Path,
        layer: &LayerName,
        of: &[LayerName],
        stop: &CancellationToken,
    ) -> Result<(), DiskError>;

    /// Changes the backing of a layer to another one with the same content.
    fn rebase(&self, directory: &Path, layer: &LayerName, backing: &LayerName) -> Result<(), DiskError>;

    /// The space that a file, or a directory with its files, takes on the host: in total, and without files that have
    /// other links. A missing one takes none.
    fn tree_bytes(&self, directory: &Path, name: &str) -> Result<TreeBytes, DiskError>;

    /// The bytes that [`Layers::commit`] would free after `child` is removed.
    fn overlap(&self, directory: &Path, child: &LayerName, into: &LayerName) -> Result<u64, DiskError>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeBytes {
    pub all: u64,
    pub unshared: u64,
}
