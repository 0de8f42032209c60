//! The destination of a VM's memory while it is copied: the host's memory if there is room, so that the VM never waits
//! for a disk, otherwise a file beside its disk. Dropping the [`Stream`] removes either.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use agentiso_core::ids::SnapshotId;
use agentiso_sys::files;
use agentiso_sys::host_memory::host_memory;
use rustix::fs::{MemfdFlags, memfd_create};

use super::memory::unfinished;
use crate::qemu::version::QemuVersion;

/// The memory that stays free on the host besides a copy.
const MARGIN: u64 = 512 << 20;

#[derive(Debug)]
pub(super) struct Stream {
    path: PathBuf,
    /// Keeps the anonymous memory file alive.
    _memory: Option<File>,
    on_disk: bool,
}

/// The first QEMU that overwrites the older copy of a page instead of appending.
const PLACES_PAGES: QemuVersion = QemuVersion { major: 9, minor: 0 };

/// The largest possible copy of a running VM's memory: its RAM, or twice that with a QEMU that only appends.
pub(super) fn longest(qemu: QemuVersion, vm_bytes: u64) -> u64 {
    match qemu >= PLACES_PAGES {
        true => vm_bytes,
        false => vm_bytes.saturating_mul(2),
    }
}

/// The space on the host's disk that a snapshot needs while memory is copied. A copy on disk exists together with the
/// converted memory.
pub(crate) fn bytes_while_copying(qemu: QemuVersion, vm_bytes: u64) -> u64 {
    let longest = longest(qemu, vm_bytes);
    match fits(longest, vm_bytes) {
        true => vm_bytes,
        false => vm_bytes.saturating_add(longest),
    }
}

/// Whether the host's memory has room for a copy. The copy counts for QEMU's cgroup, whose limit is about twice the
/// VM's RAM.
fn fits(copy_bytes: u64, vm_bytes: u64) -> bool {
    if copy_bytes > vm_bytes {
        return false;
    }
    let available = host_memory().ok().flatten().map_or(0, |memory| memory.available_bytes);
    available > copy_bytes.saturating_add(MARGIN)
}

impl Stream {
    /// A file on disk gets a name that is cleaned up after a crash.
    pub(super) fn new(data_dir: &Path, snapshot: SnapshotId, longest_bytes: u64, vm_bytes: u64) -> Self {
        match fits(longest_bytes, vm_bytes).then(|| memfd_create("agentiso-memory", MemfdFlags::CLOEXEC)) {
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
            tracing::warn!(%error, "could not remove a copy of a VM's memory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_disk::qcow2_header::create_overlay;
    use agentiso_disk::{DISK_FILE, Qcow2Storage, Storage};

    /// More memory than any host has.
    const TOO_MUCH: u64 = u64::MAX / 4;

    #[test]
    fn copy_without_room_in_memory_counts_on_disk() {
        assert_eq!(bytes_while_copying(PLACES_PAGES, TOO_MUCH), 2 * TOO_MUCH);
        assert_eq!(bytes_while_copying(PLACES_PAGES, 0), 0);
        let older = QemuVersion { major: 8, minor: 2 };
        assert_eq!(bytes_while_copying(older, TOO_MUCH), 3 * TOO_MUCH);
        assert_eq!(bytes_while_copying(older, 1), 3, "its cgroup has no room for twice its RAM");
    }

    #[tokio::test]
    async fn memory_copy_on_disk_is_always_removed() {
        let dir = tempfile::tempdir().unwrap();
        create_overlay(&dir.path().join(DISK_FILE), "layer0.qcow2", 1 << 30).unwrap();
        let stream = Stream::new(dir.path(), SnapshotId::random(), TOO_MUCH, TOO_MUCH);
        let path = stream.path().to_owned();
        assert!(path.starts_with(dir.path()), "{}", path.display());
        std::fs::write(&path, "pages").unwrap();
        drop(stream);
        assert!(!path.exists());

        let stream = Stream::new(dir.path(), SnapshotId::random(), TOO_MUCH, TOO_MUCH);
        let path = stream.path().to_owned();
        std::fs::write(&path, "pages").unwrap();
        // A killed daemon runs no destructors.
        std::mem::forget(stream);
        Qcow2Storage.settle(dir.path(), None, &[]).await.unwrap();
        assert!(!path.exists());
    }
}
