//! Reads and changes single notes.

use rustix::fs::{AtFlags, FileType, RenameFlags};
use serde_json::{Map, Value};

use crate::error::{REPLACE, VaultError};
use crate::frontmatter::{self, Change};
use crate::locked::LockedFolder;
use crate::path::{FolderPath, NotePath};
use crate::replace::{self, Edit};
use crate::replacement::Replacement;
use crate::root::{Root, read_whole};
use crate::settings::Settings;
use crate::tags::{self, Tag};

/// The notes below one directory of the host. Nothing is cached in memory, because other programs may change the files
/// at any time.
#[derive(Clone, Debug)]
pub struct Vault {
    pub(crate) settings: Settings,
}

/// The position of new text in an existing note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    Overwrite,
    Append,
    /// Before the text, but after any frontmatter.
    Prepend,
}

impl Vault {
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn root(&self) -> Result<Root, VaultError> {
        Root::open(&self.settings.path)
    }

    pub fn read(&self, path: &NotePath) -> Result<String, VaultError> {
        let file = self.root()?.note(path)?;
        text_of(read_whole(&file, path)?, path)
    }

    /// Writes a note and makes its folders. Returns whether the note is new.
    pub fn write(&self, path: &NotePath, content: &str, mode: WriteMode) -> Result<bool, VaultError> {
        self.settings.check_change(path)?;
        LockedFolder::made(&self.root()?, path.folder(), |folder| match mode {
            WriteMode::Overwrite => replace::overwrite(folder, path.name(), content.as_bytes()),
            WriteMode::Append | WriteMode::Prepend => replace::edit(folder, path.name(), |before| {
                let text = match (before, mode) {
                    (None, _) => content.to_owned(),
                    (Some(before), WriteMode::Prepend) => prepend(borrowed_text(before, path)?, content),
                    (Some(before), WriteMode::Append | WriteMode::Overwrite) => {
                        format!("{}{content}", borrowed_text(before, path)?)
                    }
                };
                Ok(Edit { content: Some(text.into_bytes()), answer: before.is_none() })
            }),
        })
    }

    /// Makes a folder and its parents. An existing folder is kept.
    pub fn make_folder(&self, path: &FolderPath) -> Result<(), VaultError> {
        self.settings.check_folder(path)?;
        self.root()?.make_folder(path).map(drop)
    }

    pub fn delete(&self, path: &NotePath) -> Result<(), VaultError> {
        self.settings.check_change(path)?;
        let folder = LockedFolder::existing(&self.root()?, path.folder())?;
        check_file(&folder, path)?;
        folder.remove(path.name())
    }

    /// Renames or moves a note.
    pub fn rename(&self, from: &NotePath, to: &NotePath, overwrite: bool) -> Result<(), VaultError> {
        self.settings.check_change(from)?;
        self.settings.check_change(to)?;
        let root = self.root()?;
        let rename = |source: &LockedFolder, target: &LockedFolder| {
            check_file(source, from)?;
            let flags = if overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
            rustix::fs::renameat_with(source, from.name(), target, to.name(), flags)
                .and_then(|()| rustix::fs::fsync(target))
                .and_then(|()| rustix::fs::fsync(source))
                .map_err(VaultError::at(REPLACE, to))
        };
        // Checked first, so that a missing note makes no folders.
        root.note(from)?;
        // Locks are always taken in the same order, so that two renames cannot deadlock.
        match from.folder().cmp(to.folder()) {
            std::cmp::Ordering::Equal => {
                let folder = LockedFolder::existing(&root, from.folder())?;
                rename(&folder, &folder)
            }
            std::cmp::Ordering::Less => {
                let source = LockedFolder::existing(&root, from.folder())?;
                LockedFolder::made(&root, to.folder(), |target| rename(&source, target))
            }
            std::cmp::Ordering::Greater => LockedFolder::made(&root, to.folder(), |target| {
                let source = LockedFolder::existing(&root, from.folder())?;
                rename(&source, target)
            }),
        }
    }

    pub fn frontmatter(&self, path: &NotePath) -> Result<Option<Map<String, Value>>, VaultError> {
        read_frontmatter(&self.read(path)?, path)
    }

    /// Changes keys of the frontmatter. Returns whether anything changed.
    pub fn change_frontmatter(&self, path: &NotePath, changes: &[Change<'_>]) -> Result<bool, VaultError> {
        self.edit(path, |text| {
            let changed =
                frontmatter::change(text, changes).map_err(|problem| bad_frontmatter(path, problem))?;
            let answer = changed != text;
            Ok((changed, answer))
        })
    }

    pub fn tags(&self, path: &NotePath) -> Result<Vec<String>, VaultError> {
        Ok(tags::all(&self.read(path)?))
    }

    /// Adds a tag to the frontmatter. Returns whether it was new.
    pub fn add_tag(&self, path: &NotePath, tag: &Tag) -> Result<bool, VaultError> {
        self.edit_tags(path, |tags| {
            if !tags.iter().any(|known| known == tag.as_str()) {
                tags.push(tag.as_str().to_owned());
            }
        })
    }

    /// Removes a tag from the frontmatter. Returns whether it was there.
    pub fn remove_tag(&self, path: &NotePath, tag: &Tag) -> Result<bool, VaultError> {
        self.edit_tags(path, |tags| tags.retain(|known| known != tag.as_str()))
    }

    fn edit_tags(&self, path: &NotePath, edit: impl Fn(&mut Vec<String>)) -> Result<bool, VaultError> {
        self.edit(path, |text| {
            let before = tags::of_map(&read_frontmatter(text, path)?.unwrap_or_default());
            let mut tags = before.clone();
            edit(&mut tags);
            if tags == before {
                return Ok((text.to_owned(), false));
            }
            let value = if tags.is_empty() { None } else { Some(Value::from(tags)) };
            let changed = frontmatter::change(text, &[("tags", value)])
                .map_err(|problem| bad_frontmatter(path, problem))?;
            Ok((changed, true))
        })
    }

    /// Replaces all matches and returns their number.
    pub fn replace(&self, path: &NotePath, replacement: &Replacement) -> Result<usize, VaultError> {
        self.edit(path, |text| replacement.apply(text, path))
    }

    /// Applies a function to a note's text, and repeats it if another program changed the note meanwhile.
    fn edit<T>(
        &self,
        path: &NotePath,
        edit: impl Fn(&str) -> Result<(String, T), VaultError>,
    ) -> Result<T, VaultError> {
        self.settings.check_change(path)?;
        let folder = LockedFolder::existing(&self.root()?, path.folder())?;
        replace::edit(&folder, path.name(), |before| {
            let before = before.ok_or_else(|| VaultError::NotFound { path: path.to_string() })?;
            let (text, answer) = edit(borrowed_text(before, path)?)?;
            Ok(Edit { content: Some(text.into_bytes()), answer })
        })
    }

    /// Whether the folder exists.
    pub(crate) fn has_folder(&self, path: &FolderPath) -> Result<bool, VaultError> {
        match self.root()?.folder(path) {
            Ok(_) => Ok(true),
            Err(VaultError::NotFound { .. } | VaultError::NotFolder { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn prepend(before: &str, content: &str) -> String {
    let body = frontmatter::split(before).map_or(before, |parts| parts.body);
    let head = &before[..before.len() - body.len()];
    let missing_end = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    format!("{head}{missing_end}{content}{body}")
}

fn check_file(folder: &LockedFolder, path: &NotePath) -> Result<(), VaultError> {
    let stat = rustix::fs::statat(folder, path.name(), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(VaultError::at("look at", path))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(VaultError::IsFolder { path: path.to_string() }),
        FileType::Symlink => Err(VaultError::Link { path: path.to_string() }),
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Err(VaultError::NotRegular { path: path.to_string() }),
    }
}

fn text_of(bytes: Vec<u8>, path: &NotePath) -> Result<String, VaultError> {
    String::from_utf8(bytes).map_err(|_| VaultError::Binary { path: path.to_string() })
}

pub(crate) fn borrowed_text<'a>(bytes: &'a [u8], path: &NotePath) -> Result<&'a str, VaultError> {
    std::str::from_utf8(bytes).map_err(|_| VaultError::Binary { path: path.to_string() })
}

fn read_frontmatter(text: &str, path: &NotePath) -> Result<Option<Map<String, Value>>, VaultError> {
    frontmatter::read(text).map_err(|problem| bad_frontmatter(path, problem))
}

fn bad_frontmatter(path: &NotePath, problem: String) -> VaultError {
    VaultError::Frontmatter { path: path.to_string(), problem }
}
