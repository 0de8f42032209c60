//! The templates on disk: finds, publishes, condemns and prunes them.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use agentiso_disk::{Backing, DISK_FILE};
use agentiso_sys::files::{self, FileError};

use super::key::{HostInputs, Inputs, TemplateKey, TemplateKind};
use super::lock::BuildLock;
use super::manifest::{self, Manifest};

/// The prefix of a build's directory; the key and a random part follow.
const BUILDING: &str = ".building-";

/// A template that failed, moved out of the way before it is removed.
const CONDEMNED: &str = ".condemned-";

/// The most templates that are kept; the least recently used ones are removed first. Each takes some 100 to 200 MB.
const MAX_TEMPLATES: usize = 12;

/// A template of another QEMU or kernel may belong to another daemon that shares the directory; one that was unused for
/// this long does not.
const FOREIGN_KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// A template that can be restored.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) key: TemplateKey,
    pub(crate) dir: PathBuf,
}

impl Template {
    pub(crate) fn ram(&self) -> PathBuf {
        self.dir.join(manifest::RAM)
    }

    pub(crate) fn device_state(&self) -> PathBuf {
        self.dir.join(manifest::DEVICE_STATE)
    }

    /// The layers below a workspace that starts from this image template.
    pub(crate) fn backing(&self, image: &str) -> Backing {
        let layers = vec![self.dir.join("layer0.qcow2"), self.dir.join(DISK_FILE)];
        Backing { name: image.to_owned(), layers }
    }

    /// Records the use, which decides what is pruned. If that fails, the template only looks older.
    pub(crate) fn touch(&self) {
        let manifest = fs::OpenOptions::new().append(true).open(self.dir.join(manifest::FILE));
        let _ = manifest.and_then(|file| file.set_modified(SystemTime::now()));
    }
}

/// Facts about a template, for people and for pruning.
#[derive(Clone, Debug)]
pub struct TemplateInfo {
    pub key: TemplateKey,
    pub manifest: Manifest,
    pub last_used: SystemTime,
    pub disk_bytes: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: PathBuf,
}

impl Store {
    pub(crate) fn open(dir: &Path) -> Result<Self, FileError> {
        files::make_private_dir(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A published template made from exactly these inputs. A damaged one is condemned.
    pub(crate) fn find(&self, inputs: &Inputs) -> Option<Template> {
        let key = inputs.key();
        let dir = self.dir.join(key.as_str());
        if !dir.is_dir() {
            return None;
        }
        match Manifest::verify(&dir, Some(inputs)) {
            Ok(_) => Some(Template { key, dir }),
            Err(error) => {
                tracing::warn!(%key, %error, "a template is unusable and will be rebuilt");
                self.condemn(&key);
                None
            }
        }
    }

    /// Makes a new directory for a build.
    pub(crate) fn begin(&self, key: &TemplateKey) -> Result<Building, FileError> {
        let dir = self.dir.join(format!("{BUILDING}{key}-{}", uuid::Uuid::new_v4().simple()));
        files::make_private_dir(&dir)?;
        Ok(Building { dir })
    }

    /// Makes a sealed build visible as a whole.
    pub(crate) fn publish(&self, building: Building, key: &TemplateKey) -> Result<Template, FileError> {
        let dir = self.dir.join(key.as_str());
        if dir.exists() {
            self.condemn(key);
        }
        fs::rename(&building.dir, &dir).map_err(FileError::at("publish", &dir))?;
        building.published();
        files::sync_dir(&self.dir)?;
        Ok(Template { key: key.clone(), dir })
    }

    /// Takes a template out of use. VMs that run from it keep its files open.
    pub(crate) fn condemn(&self, key: &TemplateKey) {
        let aside = self.dir.join(format!("{CONDEMNED}{key}-{}", uuid::Uuid::new_v4().simple()));
        // Another process may have done the same at this moment.
        if fs::rename(self.dir.join(key.as_str()), &aside).is_ok()
            && let Err(error) = files::remove_dir(&aside)
        {
            tracing::warn!(%error, "could not remove a discarded template");
        }
    }

    pub(crate) fn list(&self) -> Vec<TemplateInfo> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let key = TemplateKey::from_dir_name(entry.file_name().to_str()?)?;
                let manifest = Manifest::verify(&entry.path(), None).ok()?;
                let last_used = entry.path().join(manifest::FILE).metadata().ok()?.modified().ok()?;
                let files = fs::read_dir(entry.path()).ok()?.flatten();
                let disk_bytes =
                    files.filter_map(|f| f.metadata().ok()).map(|meta| meta.blocks() * 512).sum();
                Some(TemplateInfo { key, manifest, last_used, disk_bytes })
            })
            .collect()
    }

    /// Removes useless entries: interrupted builds, templates of removed images, old templates of another QEMU or
    /// kernel, and the least recently used beyond the limit. Returns the keys.
    pub(crate) fn prune(
        &self,
        host: &HostInputs,
        images: &HashSet<String>,
    ) -> Result<Vec<TemplateKey>, FileError> {
        self.remove_debris()?;
        let stale = stale(self.list(), host, images, SystemTime::now());
        for key in &stale {
            tracing::info!(%key, "removing a template that is no longer needed");
            self.condemn(key);
            files::remove_file(&self.dir.join(format!("{key}.lock")))?;
        }
        Ok(stale)
    }

    fn remove_debris(&self) -> Result<(), FileError> {
        for entry in fs::read_dir(&self.dir).map_err(FileError::at("read", &self.dir))?.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(CONDEMNED) {
                files::remove_dir(&entry.path())?;
            }
            let Some(rest) = name.strip_prefix(BUILDING) else { continue };
            let Some(key) = rest.split('-').next().and_then(TemplateKey::from_dir_name) else { continue };
            // A running build holds the lock.
            if BuildLock::try_acquire(&self.dir, &key)?.is_some() {
                files::remove_dir(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Selects the templates to remove.
fn stale(
    mut all: Vec<TemplateInfo>,
    host: &HostInputs,
    images: &HashSet<String>,
    now: SystemTime,
) -> Vec<TemplateKey> {
    all.sort_by_key(|info| std::cmp::Reverse(info.last_used));
    let mut kept = 0;
    all.retain(|info| {
        let unused_for = now.duration_since(info.last_used).unwrap_or_default();
        let foreign = info.manifest.inputs.host != *host;
        let image_gone = match &info.manifest.inputs.kind {
            TemplateKind::Bare | TemplateKind::Snapshot => false,
            TemplateKind::Image { image_id, .. } => !images.contains(image_id),
        };
        let unwanted = (foreign || image_gone) && unused_for > FOREIGN_KEPT_FOR;
        // A template of a removed image is useless to all daemons that share our images; one of another daemon may
        // still be used.
        let unwanted = unwanted || (image_gone && !foreign);
        if !unwanted {
            kept += 1;
        }
        unwanted || kept > MAX_TEMPLATES
    });
    all.into_iter().map(|info| info.key).collect()
}

/// The directory of a build; removed unless it is published.
#[derive(Debug)]
pub(crate) struct Building {
    dir: PathBuf,
}

impl Building {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory has its final name; nothing is left to remove.
    fn published(mut self) {
        self.dir = PathBuf::new();
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if self.dir.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = files::remove_dir(&self.dir) {
            tracing::warn!(%error, "could not remove an unfinished template");
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
