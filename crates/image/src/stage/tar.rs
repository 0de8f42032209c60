//! Unpacks a tar archive into a stage.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sha2::{Digest, Sha256};
use tar::{Archive, Entry, EntryType};

use super::tree::{Attributes, Stage, StageError};
use crate::decompress;

const XATTR_PREFIX: &str = "SCHILY.xattr.";

/// The most bytes before the content of one entry: its header, a long name, extended attributes, the map of a sparse
/// file. The library keeps all of it in memory, and a few bytes of compressed data can expand to any amount of it.
const MAX_HEADERS: u64 = 1 << 20;

/// Facts about the archive, beside its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TarSummary {
    /// SHA-256 of the decompressed stream.
    pub(crate) sha256: String,
    pub(crate) entries: u64,
}

/// Unpacks a tar, compressed or not. `wanted` sees every path, relative and normalised by tar's own rules, and may
/// leave entries out.
pub(crate) fn unpack(
    stage: &mut Stage,
    file: File,
    wanted: &dyn Fn(&Path) -> bool,
) -> Result<TarSummary, StageError> {
    let unreadable = |source| StageError::Unreadable { source };
    let headers_left = Rc::new(Cell::new(None));
    let inner = decompress::reader(file).map_err(unreadable)?;
    let mut archive =
        Archive::new(Hashing { inner, hash: Sha256::new(), headers_left: Rc::clone(&headers_left) });
    let mut all = archive.entries().map_err(unreadable)?;
    let mut entries = 0;
    loop {
        headers_left.set(Some(MAX_HEADERS));
        let Some(entry) = all.next() else { break };
        headers_left.set(None);
        let mut entry = entry.map_err(unreadable)?;
        entries += 1;
        let path = entry.path().map_err(unreadable)?.into_owned();
        if wanted(&path) {
            place(stage, &mut entry, &path)?;
        }
        // The library would skip the rest of it while it looks for the next header.
        io::copy(&mut entry, &mut io::sink()).map_err(unreadable)?;
    }
    headers_left.set(None);
    if entries == 0 {
        return Err(unreadable(io::Error::other("it is empty, or not a tar archive")));
    }
    let mut stream = archive.into_inner();
    io::copy(&mut stream, &mut io::sink()).map_err(unreadable)?;
    let sha256 = stream.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(TarSummary { sha256, entries })
}

/// Unpacks a tar into a new directory, as the import of an image does before it makes a disk, and returns the number of
/// entries. Nothing outside the directory is touched, whatever the archive contains.
pub fn unpack_tar(file: File, directory: &Path) -> Result<u64, StageError> {
    let mut stage = Stage::create(directory, 0)?;
    Ok(unpack(&mut stage, file, &|_| true)?.entries)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "kinds that are not files are left out, future ones too")]
fn place(stage: &mut Stage, entry: &mut Entry<'_, impl Read>, path: &Path) -> Result<(), StageError> {
    let attributes = attributes_of(entry)?;
    match entry.header().entry_type() {
        EntryType::Directory => stage.directory(path, attributes),
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            stage.file(path, attributes, entry)
        }
        EntryType::Symlink => stage.symlink(path, &link_target(entry, path)?, attributes),
        EntryType::Link => stage.hard_link(path, &link_target(entry, path)?),
        // Device nodes, pipes, and all other kinds, including future ones.
        _ => stage.skip_special(),
    }
}

fn link_target(entry: &Entry<'_, impl Read>, path: &Path) -> Result<PathBuf, StageError> {
    let target = entry.link_name().map_err(|source| StageError::Unreadable { source })?;
    match target {
        Some(target) if !target.as_os_str().is_empty() => Ok(target.into_owned()),
        Some(_) | None => Err(StageError::DanglingLink { path: path.to_owned(), target: PathBuf::new() }),
    }
}

fn attributes_of(entry: &mut Entry<'_, impl Read>) -> Result<Attributes, StageError> {
    let unreadable = |source| StageError::Unreadable { source };
    let mut xattrs = Vec::new();
    if let Some(extensions) = entry.pax_extensions().map_err(unreadable)? {
        for extension in extensions {
            let extension = extension.map_err(unreadable)?;
            let name = extension.key().ok().and_then(|key| key.strip_prefix(XATTR_PREFIX));
            if let Some(name) = name.filter(|name| is_kept_xattr(name)) {
                xattrs.push((OsString::from_vec(name.as_bytes().to_vec()), extension.value_bytes().to_vec()));
            }
        }
    }
    let header = entry.header();
    let id = |value: u64| {
        u32::try_from(value).map_err(|_| unreadable(io::Error::other("an owner id is too large")))
    };
    Ok(Attributes {
        uid: id(header.uid().map_err(unreadable)?)?,
        gid: id(header.gid().map_err(unreadable)?)?,
        mode: header.mode().map_err(unreadable)? & 0o7777,
        mtime: i64::try_from(header.mtime().map_err(unreadable)?).unwrap_or(0),
        xattrs,
    })
}

/// File capabilities matter in a root filesystem; labels and access lists of other systems would only confuse the
/// guest.
fn is_kept_xattr(name: &str) -> bool {
    name == "security.capability"
        || (name.starts_with("user.") && name.bytes().all(|byte| byte.is_ascii_graphic()))
}

struct Hashing<R> {
    inner: R,
    hash: Sha256,
    /// Bytes that may still be read before the next content; `None` while content is read.
    headers_left: Rc<Cell<Option<u64>>>,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        if let Some(left) = self.headers_left.get() {
            let left = left.checked_sub(read as u64);
            self.headers_left.set(Some(left.ok_or_else(|| io::Error::other("a header is too long"))?));
        }
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}
