//! Unpacks an untrusted archive into an empty directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, chmodat, fchmod, mkdirat, openat, openat2, symlinkat};
use tar::{Archive, Entry, EntryType};

use crate::MAX_DEPTH;
use crate::error::{TreeError, at};

/// The most entries of one archive.
const MAX_ENTRIES: usize = 1_000_000;

/// The most bytes in the paths of directories, which are kept in memory until the end.
const MAX_REMEMBERED: usize = 32 << 20;

/// The longest path, which is the kernel's limit.
const MAX_PATH: usize = 4095;

/// The symbolic links that an archive may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// All links: for a guest, whose directories are its own.
    Any,
    /// Links that lead to something inside the directory. Others are refused, because programs that use the directory
    /// later may follow them.
    Inside,
}

/// The result of unpacking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// The bytes in all files.
    pub bytes: u64,
}

/// Unpacks an archive beneath a directory. Modes lose the bits that are not in `mode_mask`; all files belong to the
/// calling user. After an error the directory holds a part of the archive.
pub fn unpack(
    archive: impl Read,
    directory: BorrowedFd<'_>,
    mode_mask: u32,
    links: Links,
) -> Result<Unpacked, TreeError> {
    let mut archive = Archive::new(archive);
    let mut unpacked = Unpacked::default();
    let (mut modes, mut remembered, mut long) = (Vec::new(), 0, LongNames::default());
    // Raw, because the library would read long names without a limit.
    for (number, entry) in archive.entries().map_err(TreeError::Archive)?.raw(true).enumerate() {
        let entry = entry.map_err(TreeError::Archive)?;
        if number >= MAX_ENTRIES {
            return Err(TreeError::invalid(format!("it has more than {MAX_ENTRIES} entries")));
        }
        let Some((entry, LongNames { name, target })) = long.take(entry)? else { continue };
        let path = match &name {
            Some(name) => checked_path(name)?,
            None => checked_path(&entry.path_bytes())?,
        };
        let mode = entry.header().mode().map_err(TreeError::Archive)? & 0o7777 & mode_mask;
        #[expect(clippy::wildcard_enum_match_arm, reason = "all other kinds are never packed by this crate")]
        match entry.header().entry_type() {
            EntryType::Directory => {
                if path != Path::new("") {
                    let destination = Destination::find(directory, &path)?;
                    mkdirat(&destination.parent, destination.name, Mode::RWXU).map_err(destination.at())?;
                }
                remembered += path.as_os_str().len();
                if remembered > MAX_REMEMBERED {
                    return Err(TreeError::invalid("it has too many directories"));
                }
                // Set at the end: nothing can be made below a read-only directory.
                modes.push((path, mode));
            }
            EntryType::Regular => unpacked.bytes += unpack_file(entry, directory, &path, mode)?,
            EntryType::Symlink => {
                let short = entry.link_name_bytes().map(|target| target.into_owned());
                let target = target.or(short).ok_or_else(|| TreeError::invalid("a link to nowhere"))?;
                if links == Links::Inside && !leads_inside(&path, &target) {
                    return Err(TreeError::LinkOutside {
                        path: path.display().to_string(),
                        target: String::from_utf8_lossy(&target).into_owned(),
                    });
                }
                let destination = Destination::find(directory, &path)?;
                symlinkat(target, &destination.parent, destination.name).map_err(destination.at())?;
            }
            other => return Err(TreeError::invalid(format!("an entry of kind {:?}", other.as_byte()))),
        }
    }
    // The deepest first, for the same reason.
    for (path, mode) in modes.into_iter().rev() {
        set_mode(directory, &path, Mode::from_raw_mode(mode))?;
    }
    Ok(unpacked)
}

fn unpack_file(
    mut entry: Entry<'_, impl Read>,
    directory: BorrowedFd<'_>,
    path: &Path,
    mode: u32,
) -> Result<u64, TreeError> {
    let destination = Destination::find(directory, path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&destination.parent, destination.name, flags, Mode::RUSR | Mode::WUSR)
        .map_err(destination.at())?;
    let mut file = File::from(file);
    let size = entry.size();
    let copied = copy(&mut entry, &mut file, path)?;
    if copied != size {
        return Err(TreeError::Archive(io::ErrorKind::UnexpectedEof.into()));
    }
    fchmod(&file, Mode::from_raw_mode(mode)).map_err(destination.at())?;
    Ok(copied)
}

/// Whether a link leads to something inside, regardless of other such links. All its `..` come first and do not leave
/// the directory. A link such as `a/../b` is refused: its target depends on what `a` is.
fn leads_inside(link: &Path, target: &[u8]) -> bool {
    let mut above = link.components().count().saturating_sub(1);
    let mut named = false;
    for component in Path::new(OsStr::from_bytes(target)).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(_) => named = true,
            Component::ParentDir if !named && above > 0 => above -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

/// As [`io::copy`], but says which side failed.
fn copy(from: &mut impl Read, to: &mut File, path: &Path) -> Result<u64, TreeError> {
    let mut buffer = vec![0; 64 * 1024];
    let mut copied = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(TreeError::Archive(error)),
        };
        io::Write::write_all(to, &buffer[..count])
            .map_err(|source| TreeError::Io { path: path.display().to_string(), source })?;
        copied += count as u64;
    }
}

/// The directory that an entry is made in, and its name there.
struct Destination<'a> {
    parent: OwnedFd,
    name: &'a OsStr,
    path: &'a Path,
}

impl<'a> Destination<'a> {
    fn find(directory: BorrowedFd<'_>, path: &'a Path) -> Result<Self, TreeError> {
        let name = path.file_name().ok_or_else(|| TreeError::invalid("an entry without a name"))?;
        let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        let parent = beneath(directory, parent).map_err(at(path.as_os_str().as_bytes()))?;
        Ok(Self { parent, name, path })
    }

    fn at(&self) -> impl FnOnce(rustix::io::Errno) -> TreeError {
        at(self.path.as_os_str().as_bytes())
    }
}

fn beneath(directory: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(directory, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn set_mode(directory: BorrowedFd<'_>, path: &Path, mode: Mode) -> Result<(), TreeError> {
    if path == Path::new("") {
        return fchmod(directory, mode).map_err(at(b"."));
    }
    let destination = Destination::find(directory, path)?;
    // This directory was made above; no other process knows of it yet.
    chmodat(&destination.parent, destination.name, mode, AtFlags::empty()).map_err(destination.at())
}

/// Long names and link targets, which come as entries of their own before the entry that they belong to.
#[derive(Debug, Default)]
struct LongNames {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
}

impl LongNames {
    /// Keeps an entry with a long name or target. Returns any other entry with the kept values.
    fn take<'a, R: Read>(
        &mut self,
        mut entry: Entry<'a, R>,
    ) -> Result<Option<(Entry<'a, R>, Self)>, TreeError> {
        let kind = entry.header().entry_type();
        #[expect(clippy::wildcard_enum_match_arm, reason = "all other kinds are entries themselves")]
        let kept = match kind {
            EntryType::GNULongName => &mut self.name,
            EntryType::GNULongLink => &mut self.target,
            _ => return Ok(Some((entry, std::mem::take(self)))),
        };
        let mut text = Vec::new();
        // One byte beyond the limit, and one for the zero at its end.
        entry.by_ref().take(MAX_PATH as u64 + 2).read_to_end(&mut text).map_err(TreeError::Archive)?;
        if text.last() == Some(&0) {
            text.pop();
        }
        if text.len() > MAX_PATH {
            return Err(TreeError::invalid("a path that no file can have"));
        }
        *kept = Some(text);
        Ok(None)
    }
}

/// A path that leads to something below the directory; empty for the directory itself.
fn checked_path(bytes: &[u8]) -> Result<PathBuf, TreeError> {
    if bytes.len() > MAX_PATH || bytes.contains(&0) {
        return Err(TreeError::invalid("a path that no file can have"));
    }
    let mut checked = PathBuf::new();
    for component in Path::new(OsStr::from_bytes(bytes)).components() {
        match component {
            Component::Normal(name) => checked.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(TreeError::invalid("an entry outside of the directory"));
            }
        }
    }
    if checked.components().count() > MAX_DEPTH + 1 {
        return Err(TreeError::invalid(format!("more than {MAX_DEPTH} directories within each other")));
    }
    Ok(checked)
}
