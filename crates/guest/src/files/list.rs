//! Lists a directory in batches.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use bytes::Bytes;

use super::error::{At as _, FileError};
use super::info::to_wire;
use super::path::GuestPath;

/// Passes on at most `limit` entries, in no order; 0 means as many as are allowed.
pub fn list(
    path: &GuestPath,
    limit: u32,
    mut send: impl FnMut(v1::ListDirBatch) -> bool,
) -> Result<(), FileError> {
    let most = if limit == 0 { limits::MAX_DIR_ENTRIES } else { limit.min(limits::MAX_DIR_ENTRIES) };
    let mut left = most;
    let mut batch = v1::ListDirBatch::default();
    for entry in fs::read_dir(path.as_path()).at(path.as_path())? {
        let entry = entry.at(path.as_path())?;
        let info = match entry.metadata() {
            Ok(metadata) => to_wire(&metadata),
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).at(&entry.path()),
        };
        if left == 0 {
            batch.truncated = true;
            break;
        }
        left -= 1;
        let name = Bytes::copy_from_slice(entry.file_name().as_bytes());
        batch.entries.push(v1::DirEntry { name, info: Some(info) });
        if batch.entries.len() == limits::DIR_BATCH_ENTRIES && !send(std::mem::take(&mut batch)) {
            return Err(FileError::Cancelled);
        }
    }
    if send(batch) { Ok(()) } else { Err(FileError::Cancelled) }
}
