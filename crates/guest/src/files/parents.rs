//! Makes the missing parent directories of a file, and removes them again if writing the file fails.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{FileError, WithPath as _};

/// The directories that were made. On drop, those that are empty are removed, unless [`Parents::keep`] is called.
#[derive(Debug)]
pub(super) struct Parents {
    /// The outermost first.
    made: Vec<PathBuf>,
}

impl Parents {
    /// No directories were made.
    pub(super) fn none() -> Self {
        Self { made: Vec::new() }
    }

    /// Makes the parent directory of `path`.
    pub(super) fn make(path: &Path) -> Result<Self, FileError> {
        let Some(parent) = path.parent() else { return Ok(Self::none()) };
        let mut missing: Vec<PathBuf> =
            parent.ancestors().take_while(|ancestor| !ancestor.exists()).map(Path::to_owned).collect();
        missing.reverse();
        // Built before the directories are made, so that they are also removed if only some of them could be made.
        let parents = Self { made: missing };
        fs::create_dir_all(parent).with_path(path)?;
        Ok(parents)
    }

    /// Keeps the directories, because the file was written.
    pub(super) fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        for directory in self.made.iter().rev() {
            // A directory that is not empty stays.
            drop(fs::remove_dir(directory));
        }
    }
}
