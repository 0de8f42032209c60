//! Where a machine's memory goes while it is copied: into the host's memory where there is room, so that the
//! machine never waits for a disk, else into a file beside its disk. Either is gone when this is dropped.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use agentiso_core::ids::SnapshotId;
use rustix::fs::{MemfdFlags, memfd_create};

use super::memory::unfinished;
use crate::files;
use crate::host_memory::host_memory;

/// What the host keeps free beside a copy in memory.
const MARGIN: u64 = 512 << 20;

#[derive(Debug)]
pub(super) struct Stream {
    path: PathBuf,
    /// Keeps memory that has no name alive.
    _memory: Option<File>,
    on_disk: bool,
}

/// What a copy of a machine's memory takes on the host's disk while it is made. A copy that goes to the disk is there
/// together with what becomes of it.
pub fn bytes_while_copying(machine_bytes: u64) -> u64 {
    match fits(machine_bytes) {
        true => machine_bytes,
        false => machine_bytes.saturating_mul(2),
    }
}

/// Whether the host's memory has room for a copy.
fn fits(machine_bytes: u64) -> bool {
    let available = host_memory().ok().flatten().map_or(0, |memory| memory.available_bytes);
    available > machine_bytes.saturating_add(MARGIN)
}

impl Stream {
    /// A file gets a name that is swept after a crash.
    pub(super) fn new(data_dir: &Path, snapshot: SnapshotId, machine_bytes: u64) -> Self {
        match fits(machine_bytes).then(|| memfd_create("agentiso-memory", MemfdFlags::CLOEXEC)) {
            Some(Ok(memory)) => {
                let memory = File::from(memory);
                // QEMU opens it by this path, as any process of the same user can.
                let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()));
                Self { path, _memory: Some(memory), on_disk: false }
            }
            Some(Err(_)) | None => {
                let path = unfinished(data_dir, snapshot).with_extension("stream");
                Self { path, _memory: None, on_disk: true }
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.on_disk
            && let Err(error) = files::remove_file(&self.path)
        {
            tracing::warn!(%error, "a copy of a machine's memory was not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::qcow2_header::create_overlay;
    use crate::disk::{DISK_FILE, Qcow2Storage, Storage};

    /// More than any host has.
    const TOO_MUCH: u64 = u64::MAX / 4;

    #[test]
    fn a_copy_that_the_hosts_memory_cannot_take_is_on_its_disk_twice_for_a_while() {
        assert_eq!(bytes_while_copying(TOO_MUCH), 2 * TOO_MUCH);
        assert_eq!(bytes_while_copying(0), 0);
    }

    #[tokio::test]
    async fn a_copy_on_the_disk_goes_with_its_snapshot_and_is_swept_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        create_overlay(&dir.path().join(DISK_FILE), "layer0.qcow2", 1 << 30).unwrap();
        let stream = Stream::new(dir.path(), SnapshotId::random(), TOO_MUCH);
        let path = stream.path().to_owned();
        assert!(path.starts_with(dir.path()), "{}", path.display());
        std::fs::write(&path, "pages").unwrap();
        drop(stream);
        assert!(!path.exists());

        let stream = Stream::new(dir.path(), SnapshotId::random(), TOO_MUCH);
        let path = stream.path().to_owned();
        std::fs::write(&path, "pages").unwrap();
        // A daemon that is killed drops nothing.
        std::mem::forget(stream);
        Qcow2Storage.settle(dir.path(), None, &[]).await.unwrap();
        assert!(!path.exists());
    }
}
