//! The space that a workspace may still use: within its own limit, snapshots included, and with room on the host.

use std::path::Path;

use agentiso_disk::{DiskError, Qcow2Storage};
use agentiso_sys::files::{self, FileError};
use agentiso_vm::{SizesOf, VmSpec};

use crate::qmp::QmpClient;
use crate::snapshot::SnapshotError;

/// A full disk has tables besides its data; they may take this fraction of its size.
const TABLES_SHARE: u64 = 64;

/// A guest that stopped because the host's disk was full goes on when at least this much is free.
const HOST_ROOM: u64 = 256 << 20;

/// The most that a workspace may use on the host.
fn limit(spec: &VmSpec) -> u64 {
    spec.disk_bytes() + spec.disk_bytes() / TABLES_SHARE
}

/// Makes the guest stop before its disk and its snapshots exceed the workspace's limit.
pub(crate) async fn watch(spec: &VmSpec, qmp: &QmpClient) {
    let watched = async {
        let head = qmp.disk_head(&spec.data_dir).await?;
        let longest = longest_head(spec, &head.file)?;
        qmp.watch_growth(&head.node, longest).await?;
        Ok::<_, SnapshotError>(())
    };
    if let Err(error) = watched.await {
        tracing::warn!(workspace = %spec.id, %error, "cannot watch the growth of the disk");
    }
}

/// The length up to which the head may grow.
fn longest_head(spec: &VmSpec, head: &Path) -> Result<u64, DiskError> {
    let length = head.metadata().map_err(FileError::at("read", head))?.len();
    let left = limit(spec).saturating_sub(charged(&spec.data_dir)?);
    // QEMU reports the first write beyond this length; zero would disable the report.
    Ok(length.saturating_add(left).max(1))
}

/// The shortage that keeps a guest from writing, if there is one.
pub(crate) fn missing(spec: &VmSpec) -> Result<Option<String>, DiskError> {
    let dir = &spec.data_dir;
    let (used, limit) = (charged(dir)?, limit(spec));
    if used >= limit {
        let gb = spec.resources.disk_gb;
        return Ok(Some(format!(
            "its disk and snapshots use {} MB of at most {gb} GB; delete snapshots",
            used >> 20
        )));
    }
    let free = files::space(dir)?.free_bytes;
    Ok((free < HOST_ROOM).then(|| format!("the host's disk is full ({} MB free)", free >> 20)))
}

/// The space of the workspace's disk and snapshots that counts towards its limit.
fn charged(dir: &Path) -> Result<u64, DiskError> {
    Ok(Qcow2Storage::sizes_now(dir, SizesOf::NoSnapshot)?.charged_bytes)
}
