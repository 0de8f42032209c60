//! The file that makes a directory a template. It is written last, so a directory without one is half-made.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::key::Inputs;
use crate::hex;

pub(super) const SCHEMA: u32 = 1;
pub(super) const FILE: &str = "manifest.json";
pub(super) const RAM: &str = "ram";
pub(super) const DEVICE_STATE: &str = "device-state";

/// Device state has some 100 KB; a larger file is not one.
const MAX_DEVICE_STATE: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: u32,
    pub agentiso_version: String,
    pub created_at: jiff::Timestamp,
    /// How long it took to make.
    pub build_ms: u64,
    pub inputs: Inputs,
    pub ram_bytes: u64,
    pub device_state_bytes: u64,
    pub device_state_sha256: String,
}

/// Why a directory is not a usable template.
#[derive(Debug, Error)]
pub(super) enum Unusable {
    #[error("its manifest cannot be read: {0}")]
    Manifest(String),
    #[error("it has schema {0}")]
    Schema(u32),
    #[error("it was made from other inputs than its name says")]
    Inputs,
    #[error("its file {0} is not the one that was saved")]
    Content(&'static str),
}

impl Manifest {
    /// Reads and checks what is in a directory: the RAM's size, the device state's content.
    pub(super) fn verify(dir: &Path, inputs: Option<&Inputs>) -> Result<Self, Unusable> {
        let text = std::fs::read(dir.join(FILE)).map_err(|error| Unusable::Manifest(error.to_string()))?;
        let manifest: Self =
            serde_json::from_slice(&text).map_err(|error| Unusable::Manifest(error.to_string()))?;
        if manifest.schema != SCHEMA {
            return Err(Unusable::Schema(manifest.schema));
        }
        if inputs.is_some_and(|inputs| *inputs != manifest.inputs) {
            return Err(Unusable::Inputs);
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

pub(super) fn device_state_digest(dir: &Path) -> Option<(u64, String)> {
    let path = dir.join(DEVICE_STATE);
    if path.metadata().ok()?.len() > MAX_DEVICE_STATE {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    Some((bytes.len() as u64, hex(&Sha256::digest(&bytes))))
}
