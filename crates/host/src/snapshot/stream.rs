//! Where a machine's memory goes while it is copied: into the host's memory where there is room, so that the
//! machine never waits for a disk, else into a file beside its disk. Either is gone when this is dropped.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

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

impl Stream {
    pub(super) fn new(data_dir: &Path, machine_bytes: u64) -> Self {
        let available = host_memory().ok().flatten().map_or(0, |memory| memory.available_bytes);
        let fits = available > machine_bytes.saturating_add(MARGIN);
        match fits.then(|| memfd_create("agentiso-memory", MemfdFlags::CLOEXEC)) {
            Some(Ok(memory)) => {
                let memory = File::from(memory);
                // QEMU opens it by this path, as any process of the same user can.
                let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()));
                Self { path, _memory: Some(memory), on_disk: false }
            }
            Some(Err(_)) | None => {
                Self { path: data_dir.join(".memory.stream"), _memory: None, on_disk: true }
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
