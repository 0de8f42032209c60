//! Settings of the vault: its directory, the extensions of notes, and excluded folders.

use std::path::PathBuf;

use crate::error::VaultError;
use crate::fresh::TEMPORARY;
use crate::path::{FolderPath, NotePath};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub path: PathBuf,
    /// File extensions of notes, without the dot.
    pub extensions: Vec<String>,
    /// Names of folders that are neither read nor written, at any depth.
    pub exclude_dirs: Vec<String>,
}

impl Settings {
    /// Whether a file of this name is a note.
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

    /// Refuses a folder that is excluded or inside an excluded one.
    pub(crate) fn check_folder(&self, path: &FolderPath) -> Result<(), VaultError> {
        match path.names().find(|name| self.is_excluded(name)) {
            Some(folder) => Err(VaultError::Excluded { path: path.to_string(), folder: folder.to_owned() }),
            None => Ok(()),
        }
    }

    /// Refuses a change inside an excluded folder, or of a file with the name of one.
    pub(crate) fn check_change(&self, path: &NotePath) -> Result<(), VaultError> {
        let excluded = path.folder().names().chain([path.name()]).find(|name| self.is_excluded(name));
        match excluded {
            Some(folder) => Err(VaultError::Excluded { path: path.to_string(), folder: folder.to_owned() }),
            None => Ok(()),
        }
    }
}
