//! Packs and unpacks whole directories as tar archives.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use agentiso_tree::{Links, pack, unpack};
use bytes::{Buf as _, Bytes, BytesMut};
use rustix::fs::{Mode, OFlags, open, syncfs};

use super::error::{FileError, WithPath as _};
use super::parents::Parents;
use super::path::GuestPath;
use super::replace::{random, resolve, sync_parent};
use super::write::Piece;

/// All permission bits are accepted: a client may set any mode in its own guest.
const ALL_MODES: u32 = 0o7777;

/// Packs a directory and passes the archive to `send` in chunks, until `send` returns false.
pub fn read_tree(path: &GuestPath, send: &mut dyn FnMut(v1::ReadTreeChunk) -> bool) -> Result<(), FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(path.as_path(), flags, Mode::empty()).with_path(path.as_path())?;
    let mut chunks = Chunks { send, buffer: BytesMut::new(), refused: false };
    let packed = pack(directory, &mut chunks);
    if chunks.refused {
        return Err(FileError::Cancelled);
    }
    let packed = packed.map_err(|source| FileError::Tree { path: path.display(), source })?;
    let data = chunks.buffer.split().freeze();
    match (chunks.send)(v1::ReadTreeChunk { data, end: true, skipped: packed.skipped }) {
        true => Ok(()),
        false => Err(FileError::Cancelled),
    }
}

struct Chunks<'a> {
    send: &'a mut dyn FnMut(v1::ReadTreeChunk) -> bool,
    buffer: BytesMut,
    refused: bool,
}

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(limits::CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..count]);
        if self.buffer.len() == limits::CHUNK_BYTES {
            let data = self.buffer.split().freeze();
            self.refused = !(self.send)(v1::ReadTreeChunk { data, ..v1::ReadTreeChunk::default() });
        }
        if self.refused { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(count) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks the archive that `next` delivers into a temporary directory beside the target, and renames that when it is
/// complete. Returns the archive's length.
pub fn write_tree(
    header: &v1::WriteFileHeader,
    next: &mut dyn FnMut() -> Option<Piece>,
) -> Result<u64, FileError> {
    let path = GuestPath::parse(&header.path)?;
    let target = resolve(Path::new(trimmed(&path)))?;
    let parents = if header.create_parents { Parents::make(&target)? } else { Parents::none() };
    must_be_replaceable(&target)?;
    let mut staging = Staging::make(&target)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(&staging.path, flags, Mode::empty()).with_path(&target)?;
    let mut pieces = Pieces { next, current: Bytes::new(), read: 0, announced: None };
    unpack(&mut pieces, directory.as_fd(), ALL_MODES, Links::Any)
        .map_err(|source| FileError::Tree { path: path.display(), source })?;
    // The archive ends with padding, and the announced length is the last piece.
    let rest = io::copy(&mut pieces, &mut io::sink());
    if rest.is_err() || pieces.announced != Some(pieces.read) {
        return Err(FileError::CutOff { path: path.display() });
    }
    // One call syncs all of its files, and everything else on the same file system.
    syncfs(&directory).with_path(path.as_path())?;
    // The kernel replaces an empty directory and refuses to replace any other.
    fs::rename(&staging.path, &target).with_path(path.as_path())?;
    staging.renamed = true;
    sync_parent(&target)?;
    parents.keep();
    Ok(pieces.read)
}

/// The path without slashes at its end, which the path of a directory may have.
fn trimmed(path: &GuestPath) -> &OsStr {
    let bytes = path.as_path().as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    OsStr::from_bytes(&bytes[..end])
}

/// Refuses a target at the beginning that the rename could not replace at the end.
fn must_be_replaceable(target: &Path) -> Result<(), FileError> {
    let mut entries = match fs::read_dir(target) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_path(target),
    };
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(rustix::io::Errno::NOTEMPTY).with_path(target),
    }
}

/// A temporary directory that is renamed to the target when it is complete, and removed otherwise.
struct Staging {
    path: PathBuf,
    renamed: bool,
}

impl Staging {
    fn make(target: &Path) -> Result<Self, FileError> {
        let parent = target.parent().unwrap_or(Path::new("/"));
        let path = parent.join(format!(".agentiso-{:016x}.tmp", random().with_path(target)?));
        fs::create_dir(&path).with_path(target)?;
        Ok(Self { path, renamed: false })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.renamed {
            // It fails only if its parent was removed; then the directory is gone too.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}

/// A reader of the archive that an upload delivers in pieces.
struct Pieces<'a> {
    next: &'a mut dyn FnMut() -> Option<Piece>,
    current: Bytes,
    read: u64,
    announced: Option<u64>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && self.announced.is_none() {
            match (self.next)() {
                Some(Piece::Data(bytes)) => self.current = bytes,
                Some(Piece::End(size)) => self.announced = Some(size),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        self.read += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    use agentiso_protocol::ErrorCode;
    use agentiso_protocol::schema::v1::WriteFileHeader;
    use bytes::{Bytes, BytesMut};

    use super::{Piece, read_tree, write_tree};
    use crate::files::{FileError, GuestPath};

    fn packed(path: &Path) -> Bytes {
        let path = GuestPath::parse(path.as_os_str().as_bytes()).expect("a path");
        let (mut all, mut ended) = (BytesMut::new(), false);
        read_tree(&path, &mut |chunk| {
            assert!(!ended);
            all.extend_from_slice(&chunk.data);
            ended = chunk.end;
            true
        })
        .expect("packed");
        assert!(ended);
        all.freeze()
    }

    fn put(path: &Path, pieces: Vec<Piece>) -> Result<u64, FileError> {
        let path = path.as_os_str().as_bytes().to_vec().into();
        let mut pieces = pieces.into_iter();
        write_tree(&WriteFileHeader { path, mode: None, create_parents: true }, &mut || pieces.next())
    }

    fn whole(archive: &Bytes) -> Vec<Piece> {
        let (first, rest) = (archive.slice(..700), archive.slice(700..));
        vec![Piece::Data(first), Piece::Data(rest), Piece::End(archive.len() as u64)]
    }

    #[test]
    fn tree_upload_needs_absent_or_empty_target() {
        let dir = tempfile::tempdir().expect("a directory");
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("sub")).expect("made");
        fs::write(from.join("sub/file"), vec![1; 300_000]).expect("written");
        let archive = packed(&from);
        for (to, slash) in [("new/place", ""), ("empty", "/")] {
            fs::create_dir_all(dir.path().join("empty")).expect("made");
            let to = dir.path().join(format!("{to}{slash}"));
            assert_eq!(put(&to, whole(&archive)).expect("written"), archive.len() as u64);
            assert_eq!(fs::read(to.join("sub/file")).expect("read"), vec![1; 300_000]);
        }
        let error = put(&dir.path().join("empty"), whole(&archive)).expect_err("it is not empty any more");
        assert_eq!(error.code(), ErrorCode::NotEmpty);
        let error = put(&from.join("sub/file"), whole(&archive)).expect_err("it is a file");
        assert_eq!(error.code(), ErrorCode::NotDirectory);
    }

    #[test]
    fn cut_off_tree_upload_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let from = dir.path().join("from");
        fs::create_dir(&from).expect("made");
        fs::write(from.join("file"), vec![1; 300_000]).expect("written");
        let archive = packed(&from);
        let part = archive.slice(..archive.len() / 2);
        let cases = [
            vec![],
            vec![Piece::Data(archive.clone())],
            vec![Piece::Data(part.clone())],
            vec![Piece::Data(part), Piece::End(archive.len() as u64)],
            vec![Piece::Data(archive.clone()), Piece::End(1)],
        ];
        for pieces in cases {
            assert!(put(&dir.path().join("made/on/the/way/to"), pieces).is_err());
            assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
        }
    }

    #[test]
    fn packing_ends_when_reader_leaves() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("file"), vec![1; 1_000_000]).expect("written");
        let path = GuestPath::parse(dir.path().as_os_str().as_bytes()).expect("a path");
        let mut sent = 0;
        let result = read_tree(&path, &mut |_chunk| {
            sent += 1;
            false
        });
        assert!(matches!(result, Err(FileError::Cancelled)) && sent == 1);
    }
}
