//! Packs a directory into a tar archive.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use tar::{Builder, EntryType, Header};

use crate::MAX_DEPTH;
use crate::error::{TreeError, at};

/// The result of packing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// The bytes in all files.
    pub bytes: u64,
    /// The number of pipes, sockets and devices, which are left out.
    pub skipped: u64,
}

/// Writes the contents of a directory, and its mode, as an archive.
pub fn pack(directory: OwnedFd, archive: impl Write) -> Result<Packed, TreeError> {
    let mut builder = Builder::new(archive);
    let mut packed = Packed::default();
    let status = fstat(&directory).map_err(at(b"."))?;
    let mut header = header_of(&status, EntryType::Directory, 0);
    builder.append_data(&mut header, ".", io::empty()).map_err(TreeError::Archive)?;
    pack_below(&directory, &mut Vec::new(), 0, &mut builder, &mut packed)?;
    builder.into_inner().and_then(|mut archive| archive.flush()).map_err(TreeError::Archive)?;
    Ok(packed)
}

fn pack_below(
    directory: &OwnedFd,
    prefix: &mut Vec<u8>,
    depth: usize,
    builder: &mut Builder<impl Write>,
    packed: &mut Packed,
) -> Result<(), TreeError> {
    if depth > MAX_DEPTH {
        return Err(at(prefix)(rustix::io::Errno::LOOP));
    }
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(at(prefix))? {
        let name = entry.map_err(at(prefix))?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    // Sorted, so that the same directory gives the same archive.
    names.sort_unstable();
    let length = prefix.len();
    for name in names {
        prefix.truncate(length);
        if length > 0 {
            prefix.push(b'/');
        }
        prefix.extend_from_slice(name.to_bytes());
        let status = match statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            // The entry was removed meanwhile.
            Err(rustix::io::Errno::NOENT) => continue,
            Err(error) => return Err(at(prefix)(error)),
        };
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => packed.bytes += pack_file(directory, &name, prefix, builder)?,
            FileType::Directory => {
                let mut header = header_of(&status, EntryType::Directory, 0);
                append(builder, &mut header, prefix, io::empty())?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = openat(directory, &name, flags, Mode::empty()).map_err(at(prefix))?;
                pack_below(&below, prefix, depth + 1, builder, packed)?;
            }
            FileType::Symlink => {
                let target = readlinkat(directory, &name, Vec::new()).map_err(at(prefix))?;
                let mut header = header_of(&status, EntryType::Symlink, 0);
                let (path, target) = (as_path(prefix), as_path(target.to_bytes()));
                builder.append_link(&mut header, path, target).map_err(TreeError::Archive)?;
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => packed.skipped += 1,
        }
    }
    prefix.truncate(length);
    Ok(())
}

fn pack_file(
    directory: &OwnedFd,
    name: &std::ffi::CStr,
    path: &[u8],
    builder: &mut Builder<impl Write>,
) -> Result<u64, TreeError> {
    // Non-blocking: the file may have been replaced by a pipe meanwhile.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty()).map_err(at(path))?;
    let status = fstat(file.as_fd()).map_err(at(path))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err(at(path)(rustix::io::Errno::AGAIN));
    }
    let size = u64::try_from(status.st_size).unwrap_or(0);
    let mut header = header_of(&status, EntryType::Regular, size);
    append(builder, &mut header, path, Exactly { file: File::from(file), left: size })?;
    Ok(size)
}

fn append(
    builder: &mut Builder<impl Write>,
    header: &mut Header,
    path: &[u8],
    data: impl Read,
) -> Result<(), TreeError> {
    builder.append_data(header, as_path(path), data).map_err(TreeError::Archive)
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn header_of(status: &Stat, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(status.st_mode & 0o7777);
    header.set_size(size);
    header
}

/// Reads exactly as many bytes of a file as its header says, because the header is already written.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Ok(0);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        match self.file.read(&mut buffer[..most])? {
            0 if most > 0 => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file became shorter while it was read"))
            }
            count => {
                self.left -= count as u64;
                Ok(count)
            }
        }
    }
}
