//! Validated paths inside the vault. The spelling of these types always names something below the vault's root; the
//! kernel makes sure that no link leads elsewhere, see [`crate::root`].

use std::fmt;

use serde::Serialize;
use thiserror::Error;

/// The kernel takes paths of less than 4096 bytes.
pub const MAX_PATH_LEN: usize = 4000;

/// The longest file name of common file systems.
const MAX_COMPONENT_LEN: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    #[error("it is empty; give a path inside the vault such as \"notes/today.md\"")]
    Empty,
    #[error("it begins with \"/\"; paths are relative to the vault")]
    Absolute,
    #[error("\"..\" could leave the vault")]
    Parent,
    #[error("it contains a control character")]
    Control,
    #[error("it has {len} bytes; at most {MAX_PATH_LEN} are allowed")]
    TooLong { len: usize },
    #[error("a name in it has {len} bytes; at most {MAX_COMPONENT_LEN} are allowed")]
    LongName { len: usize },
}

/// The components of a path, without empty ones and `.`.
fn names(text: &str) -> Result<Vec<&str>, PathError> {
    if text.len() > MAX_PATH_LEN {
        return Err(PathError::TooLong { len: text.len() });
    }
    // A line break in a name would break every list.
    if text.chars().any(char::is_control) {
        return Err(PathError::Control);
    }
    let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.contains(&"..") {
        return Err(PathError::Parent);
    }
    match names.iter().map(|name| name.len()).find(|len| *len > MAX_COMPONENT_LEN) {
        Some(len) => Err(PathError::LongName { len }),
        None => Ok(names),
    }
}

/// A folder of the vault; its root is the empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FolderPath(String);

impl FolderPath {
    /// `""`, `"."` and `"/"` all mean the root.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.starts_with('/') && !text.trim_start_matches('/').is_empty() {
            return Err(PathError::Absolute);
        }
        Ok(Self(names(text)?.join("/")))
    }

    pub fn root() -> Self {
        Self::default()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Its components, the outermost first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// The path of an entry of this folder. The name comes from the file system or is a literal.
    pub(crate) fn child(&self, name: &str) -> String {
        if self.is_root() { name.to_owned() } else { format!("{}/{name}", self.0) }
    }

    pub(crate) fn folder(&self, name: &str) -> Self {
        Self(self.child(name))
    }

    pub(crate) fn note(&self, name: &str) -> NotePath {
        NotePath { folder: self.clone(), name: name.to_owned() }
    }
}

impl fmt::Display for FolderPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { &self.0 })
    }
}

/// A file of the vault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotePath {
    folder: FolderPath,
    name: String,
}

impl NotePath {
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.starts_with('/') {
            return Err(PathError::Absolute);
        }
        let mut names = names(text)?;
        let name = names.pop().ok_or(PathError::Empty)?.to_owned();
        Ok(Self { folder: FolderPath(names.join("/")), name })
    }

    pub fn folder(&self) -> &FolderPath {
        &self.folder
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for NotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.folder.child(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostile_paths_are_refused_with_the_reason() {
        for (path, problem) in [
            ("", PathError::Empty),
            (".", PathError::Empty),
            ("/etc/passwd", PathError::Absolute),
            ("//x", PathError::Absolute),
            ("..", PathError::Parent),
            ("a/../../b", PathError::Parent),
            ("a/..", PathError::Parent),
            ("a\0b", PathError::Control),
            ("a\nb", PathError::Control),
            (&"x".repeat(256), PathError::LongName { len: 256 }),
            (&"x/".repeat(2001), PathError::TooLong { len: 4002 }),
        ] {
            assert_eq!(NotePath::parse(path), Err(problem), "{path:?}");
        }
    }

    #[test]
    fn one_file_has_one_spelling() {
        for path in ["a/b.md", "./a/b.md", "a//b.md", "a/./b.md", "a/b.md/"] {
            assert_eq!(NotePath::parse(path).unwrap().to_string(), "a/b.md", "{path:?}");
        }
        for path in ["", ".", "/", "./", "//"] {
            assert!(FolderPath::parse(path).unwrap().is_root(), "{path:?}");
        }
        assert_eq!(FolderPath::parse("/etc"), Err(PathError::Absolute));
    }

    proptest! {
        #[test]
        fn accepted_path_stays_below_the_root(path in "[a./\\\\ ä-]{0,20}") {
            if let Ok(note) = NotePath::parse(&path) {
                let text = note.to_string();
                prop_assert!(!text.starts_with('/') && text.split('/').all(|name| name != ".." && !name.is_empty()));
                prop_assert_eq!(NotePath::parse(&text).unwrap(), note);
            }
        }
    }
}
