//! Reads an archive that anybody may have made. Nothing of it is trusted before all of it was read.
//!
//! The members must be exactly those of the manifest, in order, as plain files of the listed sizes. Names are compared
//! and never used as paths. Links, `..` and absolute paths need no special case, because they never are the expected
//! member.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use agentiso_sys::files::{self, FileError};
use agentiso_sys::hex;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::error::{CarryError, Flaw};
use super::manifest::{HASHES, Hashes, MANIFEST, MAX_HASHES, MAX_MANIFEST, Manifest, Member, MemberSize};
use super::meter::Meter;
use super::sparse::SparseFile;
use crate::templates::manifest as template;

const BLOCK: usize = 256 << 10;

/// An archive ends with zeroes: up to this many bytes if it was written in records of twenty blocks.
const MAX_END: u64 = 64 << 10;

/// The mode of a template's files, which never change.
const FROZEN: u32 = 0o444;

type Stream = zstd::Decoder<'static, BufReader<File>>;

/// The paths that the members are unpacked to.
#[derive(Clone, Debug)]
pub(super) struct MemberPaths {
    pub(super) disk: PathBuf,
    pub(super) memory: PathBuf,
}

impl MemberPaths {
    fn of(&self, member: Member) -> PathBuf {
        match member {
            Member::Disk => self.disk.clone(),
            Member::Ram => self.memory.join(template::RAM),
            Member::DeviceState => self.memory.join(template::DEVICE_STATE),
            Member::MemoryManifest => self.memory.join(template::FILE),
        }
    }
}

/// Reads the manifest of a file. It reads only the beginning, so it does not tell whether the file is complete.
pub(super) fn look(path: &Path) -> Result<Manifest, CarryError> {
    let mut archive = tar::Archive::new(open(path)?);
    Ok(Walk::begin(path, &mut archive)?.manifest()?.0)
}

/// Unpacks a file and compares its hashes. Memory that is not wanted is read and compared, but not kept.
pub(super) fn unpack(
    path: &Path,
    paths: &MemberPaths,
    wants_memory: impl FnOnce(&Manifest) -> bool,
    mut meter: Meter,
) -> Result<Manifest, CarryError> {
    let mut archive = tar::Archive::new(open(path)?);
    let mut walk = Walk::begin(path, &mut archive)?;
    let (manifest, text) = walk.manifest()?;
    let keeps_memory = manifest.has_memory() && wants_memory(&manifest);
    let is_kept = |member: Member| member == Member::Disk || keeps_memory;
    let kept = manifest.members.iter().filter(|member| is_kept(member.name));
    refuse_without_room(paths, kept.map(|member| member.bytes).sum())?;
    if keeps_memory {
        fs::create_dir(&paths.memory).map_err(FileError::at("create the directory", &paths.memory))?;
    }
    meter.total = manifest.content_bytes();
    let mut read = Hashes::default();
    read.add(MANIFEST, hex(&Sha256::digest(&text)));
    for MemberSize { name, bytes } in &manifest.members {
        let place = is_kept(*name).then(|| paths.of(*name));
        read.add(name.as_str(), walk.member(*name, *bytes, place.as_deref(), &mut meter)?);
    }
    let flawed = |flaw| CarryError::Flawed { file: path.to_owned(), flaw };
    let said = walk.text(HASHES, MAX_HASHES)?;
    Hashes::parse(&said).and_then(|said| read.compare(&said)).map_err(flawed)?;
    walk.end()?;
    expect_end(archive.into_inner()).map_err(flawed)?;
    if keeps_memory {
        freeze(paths)?;
    }
    Ok(manifest)
}

fn open(path: &Path) -> Result<Stream, CarryError> {
    let failed = || FileError::at("read", path);
    // Opening a pipe must not wait for its writer.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(failed())?;
    let flawed = |flaw| CarryError::Flawed { file: path.to_owned(), flaw };
    if !file.metadata().map_err(failed())?.is_file() {
        return Err(flawed(Flaw::Foreign("not a regular file".to_owned())));
    }
    zstd::Decoder::new(file).map_err(|error| flawed(Flaw::Unreadable(error)))
}

/// A pass over the members of an archive.
struct Walk<'a> {
    path: &'a Path,
    entries: tar::Entries<'a, Stream>,
}

impl<'a> Walk<'a> {
    fn begin(path: &'a Path, archive: &'a mut tar::Archive<Stream>) -> Result<Self, CarryError> {
        let entries = archive.entries();
        let flawed = |error| CarryError::Flawed { file: path.to_owned(), flaw: Flaw::Unreadable(error) };
        // In raw mode, extended headers with names and sizes of any length are refused and not read.
        Ok(Self { path, entries: entries.map_err(flawed)?.raw(true) })
    }

    fn flawed(&self, flaw: Flaw) -> CarryError {
        CarryError::Flawed { file: self.path.to_owned(), flaw }
    }

    /// The manifest, and the text whose hash is compared.
    fn manifest(&mut self) -> Result<(Manifest, Vec<u8>), CarryError> {
        let text = match self.text(MANIFEST, MAX_MANIFEST) {
            // A file that does not even begin like an archive is foreign, not damaged.
            Err(CarryError::Flawed { flaw: Flaw::Unreadable(error), .. }) => {
                return Err(self.flawed(Flaw::Foreign(error.to_string())));
            }
            text => text?,
        };
        let manifest = Manifest::parse(&text).map_err(|flaw| self.flawed(flaw))?;
        Ok((manifest, text))
    }

    fn text(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, CarryError> {
        let mut entry = self.next(name)?;
        let found = entry.size();
        if found > limit {
            return Err(self.flawed(Flaw::Size { member: name.to_owned(), expected: limit, found }));
        }
        let mut text = Vec::new();
        entry.read_to_end(&mut text).map_err(|error| self.flawed(Flaw::Unreadable(error)))?;
        match text.len() as u64 == found {
            true => Ok(text),
            false => Err(self.flawed(Flaw::Ends(name.to_owned()))),
        }
    }

    /// Reads a member, and writes it to `place` if there is one. Returns its hash.
    fn member(
        &mut self,
        member: Member,
        bytes: u64,
        place: Option<&Path>,
        meter: &mut Meter,
    ) -> Result<String, CarryError> {
        let mut entry = self.next(member.as_str())?;
        if entry.size() != bytes {
            let (expected, found) = (bytes, entry.size());
            return Err(self.flawed(Flaw::Size { member: member.to_string(), expected, found }));
        }
        let created = place.map(|path| SparseFile::create(path).map(|file| (path, file))).transpose();
        let mut created = created.map_err(FileError::at("write", place.unwrap_or(self.path)))?;
        let mut hasher = Sha256::new();
        let mut block = vec![0; BLOCK];
        let mut left = bytes;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
            let block = &mut block[..wanted];
            entry.read_exact(block).map_err(|error| self.flawed(Flaw::Unreadable(error)))?;
            hasher.update(&*block);
            if let Some((path, file)) = &mut created {
                file.write(block).map_err(FileError::at("write", path))?;
            }
            left -= wanted as u64;
            meter.advance(wanted as u64)?;
        }
        if let Some((path, file)) = created {
            file.finish().map_err(FileError::at("write", path))?;
        }
        Ok(hex(&hasher.finalize()))
    }

    /// The next member, which must be a plain file of this name.
    fn next(&mut self, expected: &str) -> Result<tar::Entry<'a, Stream>, CarryError> {
        let entry = match self.entries.next() {
            Some(entry) => entry.map_err(|error| self.flawed(Flaw::Unreadable(error)))?,
            None => return Err(self.flawed(Flaw::Ends(expected.to_owned()))),
        };
        let is_plain = entry.header().entry_type() == tar::EntryType::Regular;
        if is_plain && *entry.path_bytes() == *expected.as_bytes() {
            return Ok(entry);
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let found =
            if is_plain { format!("{name:?}") } else { format!("{name:?}, which is not a regular file") };
        Err(self.flawed(Flaw::Order { expected: expected.to_owned(), found }))
    }

    fn end(mut self) -> Result<(), CarryError> {
        match self.entries.next() {
            None => Ok(()),
            Some(Ok(_)) => Err(self.flawed(Flaw::Trailing)),
            Some(Err(error)) => Err(self.flawed(Flaw::Unreadable(error))),
        }
    }
}

/// Reads to the very end, where zstd compares its own checksum. Only the archive's closing zeroes may be left.
fn expect_end(stream: Stream) -> Result<(), Flaw> {
    let mut rest = Vec::new();
    stream.take(MAX_END + 1).read_to_end(&mut rest).map_err(Flaw::Unreadable)?;
    match rest.len() as u64 <= MAX_END && rest.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(Flaw::Trailing),
    }
}

fn freeze(paths: &MemberPaths) -> Result<(), FileError> {
    for member in [Member::Ram, Member::DeviceState] {
        let path = paths.of(member);
        let mode = fs::Permissions::from_mode(FROZEN);
        fs::set_permissions(&path, mode).map_err(FileError::at("make read-only", &path))?;
    }
    files::sync_dir(&paths.memory)
}

fn refuse_without_room(paths: &MemberPaths, needed_bytes: u64) -> Result<(), CarryError> {
    let directory = paths.disk.parent().unwrap_or(Path::new("/"));
    let available_bytes = files::space(directory)?.free_bytes;
    match needed_bytes <= available_bytes {
        true => Ok(()),
        false => Err(CarryError::NoRoom { directory: directory.to_owned(), needed_bytes, available_bytes }),
    }
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
