//! How much a workspace may still write: within its own limit, snapshots included, and with room on the host.

use std::path::Path;

use rustix::fs::statvfs;

use crate::disk::{DiskError, Qcow2Storage, SizesOf};
use crate::files::FileError;
use crate::spec::MachineSpec;

/// A disk that is full has tables besides its data; they may take this part of its size.
const TABLES_SHARE: u64 = 64;

/// A guest that stopped because the host's disk was full goes on when there is at least this much room.
const HOST_ROOM: u64 = 256 << 20;

/// What a workspace may take on the host in all.
fn limit(spec: &MachineSpec) -> u64 {
    spec.disk_bytes() + spec.disk_bytes() / TABLES_SHARE
}

/// The length up to which the file that a guest writes to may grow.
pub(crate) fn longest_head(spec: &MachineSpec, head: &Path) -> Result<u64, DiskError> {
    let length = head.metadata().map_err(FileError::at("read", head))?.len();
    let left = limit(spec).saturating_sub(charged(&spec.data_dir)?);
    // QEMU tells of the first write beyond it; zero would mean that it never does.
    Ok(length.saturating_add(left).max(1))
}

/// What keeps a guest from writing on, if anything does.
pub(crate) fn missing(spec: &MachineSpec) -> Result<Option<String>, DiskError> {
    let dir = &spec.data_dir;
    let (used, limit) = (charged(dir)?, limit(spec));
    if used >= limit {
        let gb = spec.resources.disk_gb;
        return Ok(Some(format!(
            "its disk and its snapshots take {} MB of the {gb} GB it may have; delete snapshots",
            used >> 20
        )));
    }
    let host =
        statvfs(dir).map_err(|error| FileError::at("look at the file system of", dir)(error.into()))?;
    let free = host.f_bavail.saturating_mul(host.f_frsize);
    Ok((free < HOST_ROOM).then(|| format!("the host's disk is full ({} MB free)", free >> 20)))
}

/// What the workspace's disk and snapshots take of its limit.
fn charged(dir: &Path) -> Result<u64, DiskError> {
    Ok(Qcow2Storage::sizes_now(dir, SizesOf::NoSnapshot)?.charged_bytes)
}
