//! The steps that everything done to a volume consists of: the seam between what is decided in
//! [`engine`](super::engine) and where the layers are kept.
//!
//! Each step happens or does not. Content is durable when a step returns; that a name is there, or gone, is durable
//! after [`Layers::sync`] or [`Layers::store`].

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::error::DiskError;
use super::graph::LayerInfo;
use super::layer_name::LayerName;

pub trait Layers: Clone + Send + Sync + 'static {
    /// The volume's record; `None` where there is none.
    fn load(&self, directory: &Path) -> Result<Option<String>, DiskError>;

    /// Replaces the volume's record.
    fn store(&self, directory: &Path, record: &str) -> Result<(), DiskError>;

    /// Makes a directory for a volume, and says whether there was none.
    fn make_directory(&self, directory: &Path) -> Result<bool, DiskError>;

    /// The names of all that is in a directory; of one that is not there, none.
    fn names(&self, directory: &Path) -> Result<Vec<String>, DiskError>;

    /// What a layer says of itself; `None` where there is none of that name.
    fn inspect(&self, directory: &Path, layer: &LayerName) -> Result<Option<LayerInfo>, DiskError>;

    /// Whether a machine has a layer open, as far as that can be seen.
    fn is_open(&self, directory: &Path, layer: &LayerName) -> Result<bool, DiskError>;

    /// Makes an empty layer on top of another, complete or not at all.
    fn create(
        &self,
        directory: &Path,
        layer: &LayerName,
        backing: &LayerName,
        virtual_bytes: u64,
    ) -> Result<(), DiskError>;

    /// Gives a file of an image a name in the directory, and says how large a disk it is.
    fn adopt(&self, image: &Path, directory: &Path, layer: &LayerName) -> Result<u64, DiskError>;

    /// Makes sure that no layer can vanish with the image it came from.
    fn hold(&self, directory: &Path) -> Result<(), DiskError>;

    /// Gives a layer of another volume the same name in the directory.
    fn link(&self, source: &Path, directory: &Path, layer: &LayerName) -> Result<(), DiskError>;

    /// Removes what has this name, a directory with all that is in it. Nothing is as good as removed.
    fn remove(&self, directory: &Path, name: &str) -> Result<(), DiskError>;

    fn sync(&self, directory: &Path) -> Result<(), DiskError>;

    /// Writes all that a layer holds into the one below it. Seen through `child`, nothing changes at any moment.
    fn commit(&self, directory: &Path, child: &LayerName, into: &LayerName) -> Result<(), DiskError>;

    /// Makes a layer that holds what several do, the topmost first, complete or not at all. It lies on what the lowest
    /// of them lies on. Ends soon, with an error, when it is stopped.
    fn combine(
        &self,
        directory: &Path,
        layer: &LayerName,
        of: &[LayerName],
        stop: &CancellationToken,
    ) -> Result<(), DiskError>;

    /// Puts a layer on top of another with the same content as the one it is on.
    fn rebase(&self, directory: &Path, layer: &LayerName, backing: &LayerName) -> Result<(), DiskError>;

    /// What a file, or a directory with its files, takes on the host: all of it, and what nobody else has. Nothing, if
    /// it is not there.
    fn tree_bytes(&self, directory: &Path, name: &str) -> Result<TreeBytes, DiskError>;

    /// What [`Layers::commit`] would give back once `child` is gone.
    fn overlap(&self, directory: &Path, child: &LayerName, into: &LayerName) -> Result<u64, DiskError>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeBytes {
    pub all: u64,
    pub unshared: u64,
}
