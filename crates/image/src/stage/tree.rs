//! The staging directory, and the only operations that write to it.
//!
//! Every path is resolved by the kernel with the staging directory as its root (`RESOLVE_IN_ROOT`), so symbolic links
//! inside have the same meaning as in the guest and cannot lead out.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use agentiso_sys::files::FileError;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;
use thiserror::Error;

use crate::publish::create_private_dir;

/// More than any root filesystem, less than what would fill a host by accident (or by a decompression bomb).
pub(crate) const MAX_CONTENT_BYTES: u64 = 64 << 30;
pub(crate) const MAX_ENTRIES: u64 = 4_000_000;
/// The deepest nesting of directories. Finished trees are walked by recursive functions.
pub(crate) const MAX_DEPTH: usize = 256;
/// The kernel may ask for a retry while a path is being renamed; nothing is renamed here, so few tries suffice.
const RESOLVE_TRIES: usize = 8;

#[derive(Debug, Error)]
pub enum StageError {
    #[error(transparent)]
    Fs(#[from] FileError),
    #[error("the archive contains {path:?}, which leads out of the root filesystem")]
    Escapes { path: PathBuf },
    #[error("the archive contains {path:?}; names with control characters are not supported")]
    UnsupportedName { path: PathBuf },
    #[error("the archive links {path:?} to {target:?}, which does not exist")]
    DanglingLink { path: PathBuf, target: PathBuf },
    #[error("the archive contains both a directory and something else at {path:?}")]
    Clash { path: PathBuf },
    #[error("the archive has more than {MAX_DEPTH} nested directories at {path:?}")]
    TooDeep { path: PathBuf },
    #[error("the contents are larger than {} GiB", MAX_CONTENT_BYTES >> 30)]
    TooLarge,
    #[error("there are more than {MAX_ENTRIES} files")]
    TooManyEntries,
    #[error("the archive cannot be read: {source}")]
    Unreadable { source: io::Error },
}

/// The attributes of a file in the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub(crate) mode: u32,
    pub(crate) mtime: i64,
    pub(crate) xattrs: Vec<(OsString, Vec<u8>)>,
}

impl Attributes {
    pub(crate) fn root(mode: u32, mtime: i64) -> Self {
        Self { uid: 0, gid: 0, mode, mtime, xattrs: Vec::new() }
    }
}

#[derive(Debug)]
pub(crate) struct Stage {
    root: OwnedFd,
    path: PathBuf,
    /// By inode of the staging file system, so that hard links and paths through symbolic links count once.
    pub(super) attributes: HashMap<u64, Attributes>,
    bytes: u64,
    entries: u64,
    pub(crate) skipped_special: u64,
    default_mtime: i64,
}

impl Stage {
    /// Creates the directory `path`, which must not exist. Parents that an archive does not mention get
    /// `default_mtime`.
    pub(crate) fn create(path: &Path, default_mtime: i64) -> Result<Self, StageError> {
        create_private_dir(path)?;
        let root =
            rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|errno| FileError::new("open", path, errno))?;
        let mut stage = Self {
            root,
            path: path.to_owned(),
            attributes: HashMap::new(),
            bytes: 0,
            entries: 0,
            skipped_special: 0,
            default_mtime,
        };
        stage.directory(Path::new("."), Attributes::root(0o755, default_mtime))?;
        Ok(stage)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn directory(&mut self, path: &Path, attributes: Attributes) -> Result<(), StageError> {
        self.count()?;
        let path = normal(path)?;
        let directory = match split(&path) {
            None => self.open_dir(Path::new("."))?,
            Some((parent, name)) => {
                let parent = self.parent(parent)?;
                match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
                    Ok(()) => {}
                    // A link to a directory stays: `lib` is one in Debian, and archives made in layers contain both.
                    Err(Errno::EXIST) if self.open_dir(&path).is_ok() => {}
                    Err(Errno::EXIST) => {
                        remove_file(&parent, name, &path)?;
                        rustix::fs::mkdirat(&parent, name, Mode::RWXU)
                            .map_err(|errno| self.error("create", &path, errno))?;
                    }
                    Err(errno) => return Err(self.error("create", &path, errno)),
                }
                self.open_dir(&path)?
            }
        };
        self.remember(&directory, &path, attributes)
    }

    pub(crate) fn file(
        &mut self,
        path: &Path,
        attributes: Attributes,
        contents: &mut dyn Read,
    ) -> Result<(), StageError> {
        self.count()?;
        let path = normal(path)?;
        let Some((parent, name)) = split(&path) else { return Err(StageError::Clash { path }) };
        let parent = self.parent(parent)?;
        remove_file(&parent, name, &path)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| self.error("create", &path, errno))?;
        let mut file = File::from(opened);
        self.bytes += self.copy(contents, &mut file, &path)?;
        let mtime = attributes.mtime;
        self.remember(&file, &path, attributes)?;
        let times = timestamps(mtime);
        rustix::fs::futimens(&file, &times).map_err(|errno| self.error("set the time of", &path, errno))
    }

    pub(crate) fn symlink(
        &mut self,
        path: &Path,
        target: &Path,
        attributes: Attributes,
    ) -> Result<(), StageError> {
        self.count()?;
        let path = normal(path)?;
        let Some((parent, name)) = split(&path) else { return Err(StageError::Clash { path }) };
        let parent = self.parent(parent)?;
        remove_file(&parent, name, &path)?;
        rustix::fs::symlinkat(target, &parent, name).map_err(|errno| self.error("create", &path, errno))?;
        let times = timestamps(attributes.mtime);
        rustix::fs::utimensat(&parent, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| self.error("set the time of", &path, errno))?;
        let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| self.error("inspect", &path, errno))?;
        self.attributes.insert(stat.st_ino, Attributes { mode: 0o777, ..attributes });
        Ok(())
    }

    pub(crate) fn hard_link(&mut self, path: &Path, target: &Path) -> Result<(), StageError> {
        self.count()?;
        let (path, target) = (normal(path)?, normal(target)?);
        let (Some((parent, name)), Some((target_parent, target_name))) = (split(&path), split(&target))
        else {
            return Err(StageError::Clash { path });
        };
        let missing = || StageError::DanglingLink { path: path.clone(), target: target.clone() };
        let target_dir = self.open_dir(target_parent).map_err(|_| missing())?;
        let stat =
            rustix::fs::statat(&target_dir, target_name, AtFlags::SYMLINK_NOFOLLOW).map_err(|_| missing())?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(missing());
        }
        let parent = self.parent(parent)?;
        if path == target {
            return Ok(());
        }
        remove_file(&parent, name, &path)?;
        rustix::fs::linkat(&target_dir, target_name, &parent, name, AtFlags::empty())
            .map_err(|errno| self.error("link", &path, errno))
    }

    /// Leaves out a device node, socket or pipe: the guest's kernel makes its own /dev, and a device node on the host
    /// would give access to the host.
    pub(crate) fn skip_special(&mut self) -> Result<(), StageError> {
        self.skipped_special += 1;
        self.count()
    }

    /// Whether the path leads to an existing file, through links that stay inside.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.resolve(Path::new(path), OFlags::PATH).is_ok()
    }

    /// The contents of a regular file, or `None` if there is none.
    pub(crate) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, StageError> {
        let path = Path::new(path);
        match self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(opened) => {
                let mut data = Vec::new();
                let mut file = File::from(opened);
                file.read_to_end(&mut data)
                    .map_err(|source| FileError::new("read", &self.path.join(path), source))?;
                Ok(Some(data))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(self.error("read", path, errno)),
        }
    }

    /// Replaces the contents of a file and keeps its attributes, or creates it for root.
    pub(crate) fn rewrite(&mut self, path: &str, contents: &[u8]) -> Result<(), StageError> {
        let relative = Path::new(path);
        let known = self
            .resolve(relative, OFlags::PATH)
            .and_then(|file| rustix::fs::fstat(&file))
            .ok()
            .and_then(|stat| self.attributes.get(&stat.st_ino).cloned());
        let attributes = known.unwrap_or(Attributes::root(0o644, self.default_mtime));
        self.file(relative, attributes, &mut &*contents)
    }

    /// Makes sure that a directory exists, without changing an existing one.
    pub(crate) fn require_directory(&mut self, path: &str, mode: u32) -> Result<(), StageError> {
        if self.open_dir(Path::new(path)).is_ok() {
            return Ok(());
        }
        self.directory(Path::new(path), Attributes::root(mode, self.default_mtime))
    }

    /// Removes a file if it exists.
    pub(crate) fn remove(&mut self, path: &str) -> Result<(), StageError> {
        let path = normal(Path::new(path))?;
        let Some((parent, name)) = split(&path) else { return Ok(()) };
        match self.open_dir(parent) {
            Ok(parent) => remove_file(&parent, name, &path),
            Err(_) => Ok(()),
        }
    }

    /// Removes the files of a directory whose names match, and nothing deeper.
    pub(crate) fn remove_files_in(
        &mut self,
        directory: &str,
        matches: impl Fn(&str) -> bool,
    ) -> Result<(), StageError> {
        let path = Path::new(directory);
        let Ok(opened) = self.open_dir(path) else { return Ok(()) };
        let listing = rustix::fs::Dir::read_from(&opened).map_err(|errno| self.error("list", path, errno))?;
        for entry in listing {
            let entry = entry.map_err(|errno| self.error("list", path, errno))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let stat = rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| self.error("inspect", path, errno))?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory
                && matches(&name.to_string_lossy())
            {
                remove_file(&opened, name, path)?;
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), StageError> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES { Err(StageError::TooManyEntries) } else { Ok(()) }
    }

    fn copy(&self, from: &mut dyn Read, to: &mut File, path: &Path) -> Result<u64, StageError> {
        let mut block = vec![0; 128 << 10];
        let mut copied = 0;
        loop {
            let read = match from.read(&mut block) {
                Ok(0) => return Ok(copied),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(StageError::Unreadable { source }),
            };
            copied += read as u64;
            if self.bytes + copied > MAX_CONTENT_BYTES {
                return Err(StageError::TooLarge);
            }
            to.write_all(&block[..read])
                .map_err(|source| FileError::new("write", &self.path.join(path), source))?;
        }
    }

    /// Records the file's attributes in the image, and gives it a mode that lets mke2fs read it here.
    fn remember(&mut self, file: &impl AsFd, path: &Path, attributes: Attributes) -> Result<(), StageError> {
        let stat = rustix::fs::fstat(file).map_err(|errno| self.error("inspect", path, errno))?;
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let needed = if is_dir { 0o700 } else { 0o600 };
        rustix::fs::fchmod(file, Mode::from_raw_mode(attributes.mode & 0o777 | needed))
            .map_err(|errno| self.error("set the mode of", path, errno))?;
        self.attributes.insert(stat.st_ino, attributes);
        Ok(())
    }

    /// Opens the directory `path`, made with all missing parents.
    fn parent(&mut self, path: &Path) -> Result<OwnedFd, StageError> {
        if let Ok(directory) = self.open_dir(path) {
            return Ok(directory);
        }
        let mut so_far = PathBuf::new();
        for component in path.components() {
            so_far.push(component);
            if self.open_dir(&so_far).is_err() {
                self.directory(&so_far.clone(), Attributes::root(0o755, self.default_mtime))?;
            }
        }
        self.open_dir(path)
    }

    fn open_dir(&self, path: &Path) -> Result<OwnedFd, StageError> {
        self.resolve(path, OFlags::DIRECTORY | OFlags::RDONLY)
            .map_err(|errno| self.error("open", path, errno))
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let mut last = Errno::AGAIN;
        for _ in 0..RESOLVE_TRIES {
            match rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), how) {
                Err(errno @ (Errno::AGAIN | Errno::INTR)) => last = errno,
                result => return result,
            }
        }
        Err(last)
    }

    fn error(&self, action: &'static str, path: &Path, errno: Errno) -> StageError {
        FileError::new(action, &self.path.join(path), errno).into()
    }
}

fn timestamps(mtime: i64) -> Timestamps {
    let time = Timespec { tv_sec: mtime, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

fn remove_file(parent: &OwnedFd, name: &OsStr, path: &Path) -> Result<(), StageError> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => Err(StageError::Clash { path: path.to_owned() }),
        Err(errno) => Err(FileError::new("replace", path, errno).into()),
    }
}

/// A relative path without `.`; leading slashes are dropped, as in tar, and `..` is refused.
fn normal(path: &Path) -> Result<PathBuf, StageError> {
    if path.as_os_str().as_bytes().iter().any(u8::is_ascii_control) {
        return Err(StageError::UnsupportedName { path: path.to_owned() });
    }
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => result.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            Component::ParentDir => return Err(StageError::Escapes { path: path.to_owned() }),
        }
    }
    if result.components().count() > MAX_DEPTH {
        let path = result.components().take(MAX_DEPTH).collect();
        return Err(StageError::TooDeep { path });
    }
    Ok(result)
}

fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}
