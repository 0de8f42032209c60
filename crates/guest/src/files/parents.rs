//! Directories that are made on the way to a file, and go again if it never comes.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{At as _, FileError};

/// The directories that were made; removed on drop unless [`Parents::keep`] is called, as far as they are empty.
#[derive(Debug)]
pub(super) struct Parents {
    /// The outermost first.
    made: Vec<PathBuf>,
}

impl Parents {
    /// None were made.
    pub(super) fn none() -> Self {
        Self { made: Vec::new() }
    }

    /// Makes the directory that `path` is to be in.
    pub(super) fn make(path: &Path) -> Result<Self, FileError> {
        let Some(parent) = path.parent() else { return Ok(Self::none()) };
        let mut missing: Vec<PathBuf> =
            parent.ancestors().take_while(|ancestor| !ancestor.exists()).map(Path::to_owned).collect();
        missing.reverse();
        // Before anything is made: what is made by half is removed as well.
        let parents = Self { made: missing };
        fs::create_dir_all(parent).at(path)?;
        Ok(parents)
    }

    /// The file has come.
    pub(super) fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        for directory in self.made.iter().rev() {
            // Somebody else may have put something there; then it stays.
            drop(fs::remove_dir(directory));
        }
    }
}
