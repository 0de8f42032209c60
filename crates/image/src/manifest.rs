//! The manifest beside every image and kernel: its inputs and outputs, with hashes.
//!
//! Other versions of agentiso read these files, so they carry a schema version and unknown fields are ignored.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use agentiso_sys::files::{FileContext, FileError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::hash;

pub const MANIFEST: &str = "manifest.json";
pub const SCHEMA_VERSION: u32 = 1;
/// A manifest lists some hundred packages; a larger file is not one of ours.
const MAX_MANIFEST_BYTES: u64 = 16 << 20;

#[derive(Debug, Error)]
pub enum ManifestError {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error("{path} is not a valid manifest: {source}")]
    Malformed { path: PathBuf, source: serde_json::Error },
    #[error("{path} has schema version {found}; this version of agentiso reads {SCHEMA_VERSION}")]
    Schema { path: PathBuf, found: u32 },
    #[error("{path} is too large for a manifest")]
    TooLarge { path: PathBuf },
}

/// A file of an entry, by its path relative to the entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    pub sha256: String,
    pub bytes: u64,
}

impl FileRecord {
    pub(crate) fn of(path: &Path) -> Result<Self, FileError> {
        let (sha256, bytes) = hash::file(path)?;
        Ok(Self { sha256, bytes })
    }
}

/// An installed Debian package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub architecture: String,
}

/// The origin of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    Recipe { recipe: String, suite: String, requested: Vec<String> },
    ImportedTar { file_name: String },
    ImportedDirectory,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    pub kind: String,
    pub uuid: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageManifest {
    pub schema_version: u32,
    pub name: String,
    /// SHA-256 over the inputs and the disk.
    pub id: String,
    pub origin: Origin,
    pub packages: Vec<Package>,
    /// Archives, without credentials.
    pub sources: Vec<String>,
    /// SHA-256 of the tar stream the image was unpacked from; empty for directories.
    pub content_sha256: String,
    pub filesystem: Filesystem,
    /// Number of device nodes, sockets and pipes that were left out; the guest's kernel makes its own /dev.
    pub skipped_special_files: u64,
    pub files: BTreeMap<String, FileRecord>,
    pub created_at: jiff::Timestamp,
    pub tools: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelManifest {
    pub schema_version: u32,
    pub key: String,
    pub version: String,
    /// A digest of the request for this kernel, so that the next such request needs no network.
    pub request: String,
    pub packages: Vec<Package>,
    pub sources: Vec<String>,
    /// Module files in an order in which each follows those it depends on.
    pub module_order: Vec<String>,
    pub files: BTreeMap<String, FileRecord>,
    pub created_at: jiff::Timestamp,
    pub tools: BTreeMap<String, String>,
}

pub(crate) fn write<T: Serialize>(dir: &Path, manifest: &T) -> Result<(), ManifestError> {
    let path = dir.join(MANIFEST);
    let mut text = serde_json::to_vec_pretty(manifest)
        .map_err(|source| ManifestError::Malformed { path: path.clone(), source })?;
    text.push(b'\n');
    Ok(fs::write(&path, text).at("write", &path)?)
}

/// Reads a manifest; `None` if the entry does not exist.
pub(crate) fn read<T: DeserializeOwned>(dir: &Path) -> Result<Option<T>, ManifestError> {
    #[derive(Deserialize)]
    struct Versioned {
        schema_version: u32,
    }
    let path = dir.join(MANIFEST);
    match fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::new("inspect", &path, error).into()),
        Ok(metadata) if metadata.len() > MAX_MANIFEST_BYTES => return Err(ManifestError::TooLarge { path }),
        Ok(_) => {}
    }
    let text = fs::read(&path).at("read", &path)?;
    let malformed = |source| ManifestError::Malformed { path: path.clone(), source };
    let Versioned { schema_version } = serde_json::from_slice(&text).map_err(malformed)?;
    if schema_version != SCHEMA_VERSION {
        return Err(ManifestError::Schema { path, found: schema_version });
    }
    Ok(Some(serde_json::from_slice(&text).map_err(malformed)?))
}

/// The installed packages in a dpkg status file.
pub(crate) fn packages_of(status: &str) -> Vec<Package> {
    let mut packages = Vec::new();
    for stanza in status.split("\n\n") {
        let field = |name: &str| {
            stanza
                .lines()
                .find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')))
                .map(|value| value.trim().to_owned())
        };
        if let (Some(name), Some(version), Some(state)) =
            (field("Package"), field("Version"), field("Status"))
            && state.ends_with(" installed")
        {
            let architecture = field("Architecture").unwrap_or_default();
            packages.push(Package { name, version, architecture });
        }
    }
    packages.sort();
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_are_listed() {
        let status = "Package: b\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2\n\n\
                      Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                      Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1:1.0-1\nDescription: x\n more\n";
        let names: Vec<_> =
            packages_of(status).into_iter().map(|p| format!("{}={}", p.name, p.version)).collect();
        assert_eq!(names, ["a=1:1.0-1", "b=2"]);
    }

    #[test]
    fn unknown_manifest_schema_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(MANIFEST), "{\"schema_version\": 99}").unwrap();
        let error = read::<ImageManifest>(dir.path()).unwrap_err();
        assert!(error.to_string().contains("schema version 99"), "{error}");
    }

    #[test]
    fn first_manifest_schema_stays_readable() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(MANIFEST), include_str!("../tests/fixtures/image-manifest-v1.json"))
            .unwrap();
        let manifest = read::<ImageManifest>(dir.path()).unwrap().unwrap();
        assert_eq!(manifest.name, "debian-minimal");
        assert_eq!(manifest.files["disk.qcow2"].bytes, 270401536);
        assert!(matches!(manifest.origin, Origin::Recipe { ref suite, .. } if suite == "bookworm"));
    }
}
