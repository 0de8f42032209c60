//! The names of layers: bare file names, the same in every directory that has a link to the layer.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The first layer of a volume, and the only one that a template makes itself.
pub const DISK_FILE: &str = "disk.qcow2";

const SUFFIX: &str = ".qcow2";

/// The number of digits in a generated name. Names only have to be unique within a workspace and its forks.
const DIGITS: usize = 16;

/// The bare name of a layer's file, which cannot lead to another directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LayerName(String);

impl LayerName {
    pub(crate) fn unique() -> Self {
        let digits = uuid::Uuid::new_v4().simple().to_string();
        Self(format!("{}{SUFFIX}", &digits[..DIGITS]))
    }

    /// The first layer that a volume makes itself.
    pub(crate) fn first() -> Self {
        Self(DISK_FILE.to_owned())
    }

    /// Layer `index` of what a volume was made from. A template's disk uses the same names, so that its backing
    /// reference is valid in every directory.
    pub(crate) fn of_image(index: usize) -> Self {
        Self(format!("layer{index}{SUFFIX}"))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bare = text.len() > SUFFIX.len()
            && text.ends_with(SUFFIX)
            && !text.starts_with('.')
            && !text.contains(['/', '\0']);
        bare.then(|| Self(text.to_owned()))
    }

    /// The name in a path that the storage returned.
    pub fn of(path: &Path) -> Option<Self> {
        Self::parse(path.file_name()?.to_str()?)
    }

    /// Whether a volume made this layer, so that it may be merged and removed. All others are the image's.
    pub fn is_own(&self) -> bool {
        let stem = self.0.strip_suffix(SUFFIX).unwrap_or_default();
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        self.0 == DISK_FILE || (stem.len() == DIGITS && stem.bytes().all(digit))
    }

    pub(crate) fn is_image(&self) -> bool {
        let stem = self.0.strip_suffix(SUFFIX).and_then(|stem| stem.strip_prefix("layer"));
        stem.is_some_and(|index| !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn in_dir(&self, directory: &Path) -> PathBuf {
        directory.join(&self.0)
    }
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for LayerName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is not the name of a layer"))
    }
}

impl From<LayerName> for String {
    fn from(name: LayerName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_name_never_leaves_its_directory() {
        for text in ["../x.qcow2", "/x.qcow2", ".qcow2", ".x.qcow2", "", "x", "a/b.qcow2", "a\0.qcow2"] {
            assert_eq!(LayerName::parse(text), None, "{text:?}");
        }
        assert!(serde_json::from_str::<LayerName>("\"../x.qcow2\"").is_err());
    }

    #[test]
    fn own_and_image_layer_names_are_distinguished() {
        let own = LayerName::unique();
        assert!(own.is_own() && !own.is_image(), "{own}");
        assert_ne!(own, LayerName::unique());
        assert!(LayerName::first().is_own());
        assert!(LayerName::of_image(12).is_image() && !LayerName::of_image(12).is_own());
        let other = LayerName::parse("backup.qcow2").unwrap();
        assert!(!other.is_own() && !other.is_image());
    }
}
