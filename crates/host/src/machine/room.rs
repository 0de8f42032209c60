//! How much a workspace may still write: within its own limit, snapshots included, and with room on the host.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::statvfs;

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
pub(crate) fn longest_head(spec: &MachineSpec, head: &Path) -> Result<u64, FileError> {
    let length = head.metadata().map_err(FileError::at("read", head))?.len();
    let left = limit(spec).saturating_sub(used(&spec.data_dir)?);
    // QEMU tells of the first write beyond it; zero would mean that it never does.
    Ok(length.saturating_add(left).max(1))
}

/// What keeps a guest from writing on, if anything does.
pub(crate) fn missing(spec: &MachineSpec) -> Result<Option<String>, FileError> {
    let dir = &spec.data_dir;
    let (used, limit) = (used(dir)?, limit(spec));
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

/// The blocks of the files that belong to this directory alone: a layer that others have a link to is not counted.
fn used(dir: &Path) -> Result<u64, FileError> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).map_err(FileError::at("read", dir))?.flatten() {
        // What goes away while we look takes no space.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            bytes += used(&entry.path())?;
        } else if meta.is_file() && meta.nlink() == 1 {
            bytes += meta.blocks() * 512;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_this_directorys_alone_counts() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("memory")).unwrap();
        for name in ["layer", "memory/ram", "shared"] {
            fs::write(dir.path().join(name), vec![1; 1 << 16]).unwrap();
        }
        let all = used(dir.path()).unwrap();
        assert_eq!(all, 3 << 16);
        let other = tempfile::tempdir_in(dir.path().parent().unwrap()).unwrap();
        fs::hard_link(dir.path().join("shared"), other.path().join("shared")).unwrap();
        assert_eq!(used(dir.path()).unwrap(), 2 << 16);
    }
}
