//! Which directory is the vault and what in it are notes.

use std::path::PathBuf;

use crate::error::VaultError;
use crate::fresh::TEMPORARY;
use crate::path::{FolderPath, NotePath};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub path: PathBuf,
    /// Without the dot.
    pub extensions: Vec<String>,
    /// Names of folders that are neither looked into nor written to, wherever they are.
    pub exclude_dirs: Vec<String>,
}

impl Settings {
    /// Whether lists and searches show a file of this name.
    pub(crate) fn is_note(&self, name: &str) -> bool {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        !name.starts_with(TEMPORARY)
            && extension.is_some_and(|found| {
                self.extensions.iter().any(|known| known.trim_start_matches('.') == found)
            })
    }

    pub(crate) fn is_excluded(&self, folder: &str) -> bool {
        self.exclude_dirs.iter().any(|excluded| excluded == folder)
    }

    /// Refuses a folder that is excluded, or in one that is.
    pub(crate) fn check_folder(&self, path: &FolderPath) -> Result<(), VaultError> {
        match path.names().find(|name| self.is_excluded(name)) {
            Some(folder) => Err(VaultError::Excluded { path: path.to_string(), folder: folder.to_owned() }),
            None => Ok(()),
        }
    }

    /// Refuses to change what is in an excluded folder, or would take the place of one.
    pub(crate) fn check_change(&self, path: &NotePath) -> Result<(), VaultError> {
        let excluded = path.folder().names().chain([path.name()]).find(|name| self.is_excluded(name));
        match excluded {
            Some(folder) => Err(VaultError::Excluded { path: path.to_string(), folder: folder.to_owned() }),
            None => Ok(()),
        }
    }
}
