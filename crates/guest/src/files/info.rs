//! Converts metadata of files to messages of the protocol.

use std::fs;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

use agentiso_protocol::schema::v1;

use super::error::{FileError, WithPath as _};
use super::path::GuestPath;

pub(super) fn to_wire(metadata: &Metadata) -> v1::FileInfo {
    let kind = metadata.file_type();
    let kind = if kind.is_file() {
        v1::FileKind::File
    } else if kind.is_dir() {
        v1::FileKind::Directory
    } else if kind.is_symlink() {
        v1::FileKind::Symlink
    } else {
        v1::FileKind::Other
    };
    v1::FileInfo {
        kind: kind.into(),
        size: metadata.size(),
        mode: metadata.mode() & 0o7777,
        modified_s: metadata.mtime(),
        // The kernel keeps it below a billion; a file system that was made elsewhere may hold more.
        modified_ns: u32::try_from(metadata.mtime_nsec()).unwrap_or(0).min(999_999_999),
        uid: metadata.uid(),
        gid: metadata.gid(),
    }
}

/// The metadata of a path. With `follow`, a symbolic link at its end is followed.
pub fn stat(path: &GuestPath, follow: bool) -> Result<v1::FileInfo, FileError> {
    let path = path.as_path();
    let metadata = if follow { fs::metadata(path) } else { fs::symlink_metadata(path) };
    Ok(to_wire(&metadata.with_path(path)?))
}
