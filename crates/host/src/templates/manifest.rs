//! The manifest file of a template. It is written last, so a directory without one is incomplete.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use agentiso_disk::DISK_FILE;
use agentiso_sys::files::{self, FileError};
use agentiso_sys::hex;
use agentiso_sys::jail::take_back;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::key::Inputs;

pub(crate) const SCHEMA: u32 = 1;
pub(crate) const FILE: &str = "manifest.json";
pub(crate) const RAM: &str = "ram";
pub(crate) const DEVICE_STATE: &str = "device-state";

const FROZEN: u32 = 0o444;

/// Device state has some 100 KB; a larger file is invalid.
const MAX_DEVICE_STATE: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: u32,
    pub agentiso_version: String,
    pub created_at: jiff::Timestamp,
    /// The time that the build took.
    pub build_ms: u64,
    pub inputs: Inputs,
    pub ram_bytes: u64,
    pub device_state_bytes: u64,
    pub device_state_sha256: String,
}

/// The reason why a directory is not a usable template.
#[derive(Debug, Error)]
pub(crate) enum Unusable {
    #[error("its manifest cannot be read: {0}")]
    Manifest(String),
    #[error("unknown schema {0}")]
    Schema(u32),
    #[error("its inputs do not match its key")]
    Inputs(Box<Inputs>),
    #[error("its file {0} does not match its manifest")]
    Content(&'static str),
}

impl Manifest {
    /// Reads a manifest and checks the files: the RAM's size and the device state's content.
    pub(crate) fn verify(dir: &Path, inputs: Option<&Inputs>) -> Result<Self, Unusable> {
        let text = fs::read(dir.join(FILE)).map_err(|error| Unusable::Manifest(error.to_string()))?;
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| Unusable::Manifest(error.to_string()))?;
        if manifest.schema != SCHEMA {
            return Err(Unusable::Schema(manifest.schema));
        }
        if inputs.is_some_and(|inputs| !inputs.fit(&manifest.inputs)) {
            return Err(Unusable::Inputs(Box::new(manifest.inputs)));
        }
        let ram = dir.join(RAM).metadata();
        if !ram.is_ok_and(|meta| meta.len() == manifest.ram_bytes) {
            return Err(Unusable::Content(RAM));
        }
        match device_state_digest(dir) {
            Some((bytes, sha256))
                if bytes == manifest.device_state_bytes && sha256 == manifest.device_state_sha256 =>
            {
                Ok(manifest)
            }
            Some(_) | None => Err(Unusable::Content(DEVICE_STATE)),
        }
    }
}

/// Makes the files of a finished template read-only and durable, and writes the manifest. `None`: the device state that
/// was just saved cannot be read back.
pub(crate) fn seal(dir: &Path, inputs: Inputs, took: Duration) -> Result<Option<Manifest>, FileError> {
    for log in ["console.log", "stderr.log"] {
        files::remove_file(&dir.join(log))?;
    }
    let Some((device_state_bytes, device_state_sha256)) = device_state_digest(dir) else { return Ok(None) };
    let ram = dir.join(RAM);
    let ram_bytes = ram.metadata().map_err(FileError::at("read", &ram))?.len();
    for entry in fs::read_dir(dir).map_err(FileError::at("read", dir))? {
        let path = entry.map_err(FileError::at("read", dir))?.path();
        if path.file_name().is_some_and(|name| name == RAM || name == DEVICE_STATE || name == DISK_FILE) {
            // The VM that wrote it has ended, so its user no longer exists.
            take_back(&path)?;
            let mode = fs::Permissions::from_mode(FROZEN);
            fs::set_permissions(&path, mode).map_err(FileError::at("make read-only", &path))?;
        }
        File::open(&path).and_then(|file| file.sync_all()).map_err(FileError::at("sync", &path))?;
    }
    let manifest = Manifest {
        schema: SCHEMA,
        agentiso_version: env!("CARGO_PKG_VERSION").to_owned(),
        created_at: jiff::Timestamp::now(),
        build_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        inputs,
        ram_bytes,
        device_state_bytes,
        device_state_sha256,
    };
    let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    files::write_durably(&dir.join(FILE), &text)?;
    Ok(Some(manifest))
}

fn device_state_digest(dir: &Path) -> Option<(u64, String)> {
    let path = dir.join(DEVICE_STATE);
    if path.metadata().ok()?.len() > MAX_DEVICE_STATE {
        return None;
    }
    let bytes = fs::read(path).ok()?;
    Some((bytes.len() as u64, hex(&Sha256::digest(&bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::argv::Shape;
    use crate::templates::key::TemplateKind;
    use crate::templates::key::tests::host_inputs;

    #[test]
    fn saved_memory_fits_despite_other_boot_files() {
        let dir = tempfile::tempdir().unwrap();
        for file in [RAM, DEVICE_STATE] {
            fs::write(dir.path().join(file), "content").unwrap();
        }
        let wanted = Inputs::new(&host_inputs(), Shape { vcpus: 1, memory_mb: 256 }, TemplateKind::Snapshot);
        // As older versions recorded it, with all of the host's inputs.
        let noted = Inputs { host: host_inputs(), ..wanted.clone() };
        seal(dir.path(), noted.clone(), Duration::ZERO).unwrap().unwrap();
        for inputs in [&wanted, &noted] {
            assert!(Manifest::verify(dir.path(), Some(inputs)).is_ok());
        }
        let other = Inputs { vcpus: 2, ..wanted };
        assert!(matches!(Manifest::verify(dir.path(), Some(&other)), Err(Unusable::Inputs(_))));
        let of_template = Inputs { kind: TemplateKind::Bare, ..noted };
        let mut another_agent = of_template.clone();
        another_agent.host.initrd_sha256.push('x');
        assert!(!of_template.fit(&another_agent), "a template stands for a boot");
    }
}
