//! Reads a file in chunks.

use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use bytes::BytesMut;
use rustix::fs::{Mode, OFlags, open};

use super::error::{FileError, WithPath as _};
use super::info::to_wire;
use super::path::GuestPath;

/// Reads at most `limit` bytes from `offset` on and passes them to `send` in chunks, until `send` returns false.
///
/// The size of a file is not relied on: files of `/proc` have size zero and content nevertheless.
pub fn read(
    path: &GuestPath,
    offset: u64,
    limit: u64,
    mut send: impl FnMut(v1::ReadFileChunk) -> bool,
) -> Result<(), FileError> {
    let file = open_regular(path)?;
    let metadata = file.metadata().with_path(path.as_path())?;
    let mut info = Some(to_wire(&metadata));
    let (mut at, mut left) = (offset, limit);
    loop {
        // Limited by the kernel's largest file offset.
        let wanted = left.min(limits::CHUNK_BYTES as u64).min((i64::MAX as u64).saturating_sub(at)) as usize;
        let data = read_chunk(&file, at, wanted).with_path(path.as_path())?;
        let count = data.len();
        let last = count < wanted || left == count as u64 || wanted == 0;
        // For an empty file, a chunk with the metadata alone is sent. Later empty chunks are not sent.
        if (count > 0 || info.is_some())
            && !send(v1::ReadFileChunk { info: info.take(), data: data.freeze() })
        {
            return Err(FileError::Cancelled);
        }
        if last {
            return Ok(());
        }
        at += count as u64;
        left -= count as u64;
    }
}

/// Opens a regular file. Devices are not opened at all, because opening them can have effects.
fn open_regular(path: &GuestPath) -> Result<File, FileError> {
    must_be_regular(path, &fs::metadata(path.as_path()).with_path(path.as_path())?)?;
    // The file may have been replaced by a pipe between the two calls; opening a pipe must not wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path.as_path(), flags, Mode::empty()).with_path(path.as_path())?);
    must_be_regular(path, &file.metadata().with_path(path.as_path())?)?;
    Ok(file)
}

fn must_be_regular(path: &GuestPath, metadata: &fs::Metadata) -> Result<(), FileError> {
    if metadata.is_file() {
        Ok(())
    } else if metadata.is_dir() {
        Err(FileError::IsDirectory { path: path.display() })
    } else {
        Err(FileError::NotRegular { path: path.display() })
    }
}

fn read_chunk(file: &File, at: u64, wanted: usize) -> std::io::Result<BytesMut> {
    let mut chunk = BytesMut::zeroed(wanted);
    let mut have = 0;
    while have < wanted {
        match file.read_at(&mut chunk[have..], at + have as u64) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    chunk.truncate(have);
    Ok(chunk)
}
