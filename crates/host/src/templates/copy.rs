//! Copies a RAM file, which is mostly holes, and keeps the holes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek};
use rustix::io::Errno;

/// Copies a sparse file, sharing its blocks where the file system can.
pub(super) fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    if ioctl_ficlone(&target, &source).is_ok() {
        return Ok(());
    }
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let mut at = 0;
    while at < length {
        let start = match seek(&source, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = seek(&source, SeekFrom::Hole(start))?;
        copy_range(&source, &target, start, end)?;
        at = end;
    }
    Ok(())
}

fn copy_range(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut read_at, mut write_at) = (start, start);
    while read_at < end {
        let wanted = usize::try_from(end - read_at).unwrap_or(usize::MAX);
        if copy_file_range(source, Some(&mut read_at), target, Some(&mut write_at), wanted)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn sparse_copy_keeps_content_and_holes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        let file = File::create(&from).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        file.write_all_at(b"middle", 20 << 20).unwrap();
        copy_sparse(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), std::fs::read(&from).unwrap());
        assert!(to.metadata().unwrap().blocks() * 512 < 1 << 20);
    }

    #[test]
    fn sparse_copy_handles_empty_files() {
        let dir = tempfile::tempdir().unwrap();
        for (name, length) in [("holes", 1 << 20), ("empty", 0)] {
            let (from, to) = (dir.path().join(name), dir.path().join(format!("{name}-copy")));
            File::create(&from).unwrap().set_len(length).unwrap();
            copy_sparse(&from, &to).unwrap();
            assert_eq!(to.metadata().unwrap().len(), length);
        }
    }
}
