//! Checks on the host, from an image's disk, whether the image can be booted with its own init.
//!
//! With `vm.init_mode = "system"` the agent hands process 1 over to the image's `/sbin/init`. An image without one is
//! refused before a VM is made for it.

use std::path::Path;

use agentiso_core::config::InitMode;
use agentiso_diff::ext4::{Ext4Error, FileSystem, Kind};
use agentiso_diff::qcow2::{Chain, Qcow2Error};
use agentiso_vm::BaseImage;
use thiserror::Error;

use super::error::BootError;

/// The path at which the agent looks for an image's init.
pub const IMAGE_INIT: &str = "/sbin/init";

/// The disk of an image could not be read.
#[derive(Debug, Error)]
pub enum LookError {
    #[error(transparent)]
    Disk(#[from] Qcow2Error),
    #[error(transparent)]
    FileSystem(#[from] Ext4Error),
}

/// Whether the disk has a program at [`IMAGE_INIT`], following links. Nothing is mounted. Blocks for some reads.
pub fn has_init(disk: &Path) -> Result<bool, LookError> {
    let chain = Chain::open(disk)?;
    let files = FileSystem::open(&chain)?;
    let found = files.find(IMAGE_INIT.as_bytes())?;
    Ok(found.is_some_and(|file| file.kind() == Kind::File && file.mode() & 0o111 != 0))
}

/// Refuses an image without an init if the image's own init is configured. A disk that cannot be read here is left to
/// the agent, which reports what it finds.
pub(crate) async fn refuse_missing_init(image: &BaseImage, mode: InitMode) -> Result<(), BootError> {
    match mode {
        InitMode::Fast => return Ok(()),
        InitMode::System => {}
    }
    let disk = image.disk.clone();
    let looking = tokio::task::spawn_blocking(move || has_init(&disk));
    match looking.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
        Ok(true) => Ok(()),
        Ok(false) => Err(BootError::NoInit { image: image.name.clone() }),
        Err(error) => {
            tracing::debug!(image = %image.name, %error, "could not check whether the image has an init");
            Ok(())
        }
    }
}
