//! Small file operations that several crates need: private directories, durable replacement, hard links, bounded
//! reads of a log's end, free space.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::fault;

/// An error of the system, with the action and the path it was about.
#[derive(Debug, Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    pub action: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

impl FileError {
    pub fn new(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { action, path: path.to_owned(), source: source.into() }
    }

    /// For `map_err`: names the action and the path.
    pub fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }

    pub fn is_out_of_space(&self) -> bool {
        is_out_of_space(&self.source)
    }
}

/// Adds action and path to a result.
pub trait FileContext<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T, E: Into<io::Error>> FileContext<T> for Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError::new(action, path, source))
    }
}

/// Whether a full disk is the cause.
pub fn is_out_of_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The space of a file system.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    pub total_bytes: u64,
    /// Without the space that is reserved for root.
    pub free_bytes: u64,
}

/// The space of the file system that a path is on.
pub fn space(path: &Path) -> Result<Space, FileError> {
    let found = rustix::fs::statvfs(path).at("get the free space of", path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(Space { total_bytes: bytes(found.f_blocks), free_bytes: bytes(found.f_bavail) })
}

/// Makes a directory, and its parents, that only the user may enter.
pub fn make_private_dir(path: &Path) -> Result<(), FileError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(FileError::at("create the directory", path))
}

/// Makes the entries of a directory durable.
pub fn sync_dir(path: &Path) -> Result<(), FileError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(FileError::at("sync the directory", path))
}

/// Replaces a file so that a reader or a crash sees either the old or the new content.
pub fn write_durably(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = parent.join(format!(".{name}.{}", uuid::Uuid::new_v4().simple()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        fault::write("files.write")?;
        file.write_all(content)?;
        fault::write("files.sync")?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if let Err(source) = written {
        // The error of the write is the one that matters; at worst a hidden file is left.
        let _ = fs::remove_file(&temporary);
        return Err(FileError::at("write", path)(source));
    }
    sync_dir(parent)
}

/// Gives a file a second name, so that it outlives the removal of the first.
pub fn link(original: &Path, link: &Path) -> Result<(), FileError> {
    fs::hard_link(original, link).map_err(FileError::at("link", link))
}

/// Removes a directory with its content. A missing one counts as removed.
pub fn remove_dir(path: &Path) -> Result<(), FileError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::at("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The suffix of a directory's name while it is being removed.
pub const DELETED: &str = ".deleted";

/// The name of a directory after its removal was decided.
pub fn deleted_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(DELETED);
    PathBuf::from(name)
}

/// Removes a directory so that a crash leaves it whole, or under a name that marks it as deleted. A rename needs no
/// space, so this works on a full disk too. A missing directory counts as removed.
pub fn discard_dir(path: &Path) -> Result<(), FileError> {
    let doomed = deleted_name(path);
    // A leftover of an interrupted removal.
    remove_dir(&doomed)?;
    match fs::rename(path, &doomed) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FileError::at("mark as deleted", path)(error)),
    }
    if let Some(parent) = path.parent() {
        sync_dir(parent)?;
    }
    remove_dir(&doomed)
}

/// Removes a file. A missing one counts as removed.
pub fn remove_file(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FileError::at("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The last `limit` bytes of a file, and whether there are others before them. Empty if there is no file.
pub fn read_tail(path: &Path, limit: u64) -> io::Result<(Vec<u8>, bool)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), false)),
        Err(error) => return Err(error),
    };
    let cut = file.metadata()?.len().saturating_sub(limit);
    file.seek(SeekFrom::Start(cut))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok((bytes, cut > 0))
}

/// The last `limit` bytes of a file, as text; bytes that are not UTF-8 are replaced. Empty if it cannot be read.
pub fn tail(path: &Path, limit: u64) -> String {
    read_tail(path, limit).map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn durable_write_replaces_without_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        write_durably(&path, b"one").unwrap();
        write_durably(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn hard_link_outlives_the_original_name() {
        let dir = tempfile::tempdir().unwrap();
        let (original, link) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&original, "disk").unwrap();
        super::link(&original, &link).unwrap();
        fs::remove_file(&original).unwrap();
        assert_eq!(fs::read(&link).unwrap(), b"disk");
        assert_eq!(fs::metadata(&link).unwrap().nlink(), 1);
    }

    #[test]
    fn tail_is_bounded_and_tolerates_missing_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "abcdefgh").unwrap();
        assert_eq!(tail(&path, 3), "fgh");
        assert_eq!(tail(&path, 100), "abcdefgh");
        assert_eq!(tail(&dir.path().join("none"), 3), "");
        fs::write(&path, "aé").unwrap();
        assert_eq!(tail(&path, 1), "\u{fffd}", "a character is cut");
    }

    #[test]
    fn removing_missing_files_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        remove_dir(&dir.path().join("x")).unwrap();
        remove_file(&dir.path().join("x")).unwrap();
        discard_dir(&dir.path().join("x")).unwrap();
    }

    #[test]
    fn private_directory_admits_only_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        make_private_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
