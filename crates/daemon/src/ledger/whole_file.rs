//! Files that are read and replaced as a whole, so that a crash at any moment leaves the old or the new one.
//!
//! Reading and writing share one limit: a text that reading would refuse is not written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::error::LedgerError;

/// The content of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    Absent,
    Text(String),
    /// It exists, but is no text of the right size, for this reason.
    Unusable(String),
}

/// Reads at most `limit` bytes. Errors are those of the host's disk, not of the file's content.
pub(super) fn read(path: &Path, limit: u64) -> Result<Content, LedgerError> {
    // Checked before opening: opening a pipe would wait for a writer.
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Absent),
        Err(error) => return Err(LedgerError::io(path, error)),
    };
    if !found.is_file() {
        return Ok(Content::Unusable("it is not a regular file".to_owned()));
    }
    let too_large = || Ok(Content::Unusable(format!("it has more than {limit} bytes")));
    if found.len() > limit {
        return too_large();
    }
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Absent),
        Err(error) => return Err(LedgerError::io(path, error)),
    };
    let mut bytes = Vec::new();
    let length = file.take(limit + 1).read_to_end(&mut bytes);
    let length = length.map_err(|error| LedgerError::io(path, error))? as u64;
    if length > limit {
        return too_large();
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Content::Text(text),
        Err(error) => Content::Unusable(error.utf8_error().to_string()),
    })
}

/// Replaces the file: writes a temporary file, syncs and renames it, then syncs the directory. A text beyond the
/// limit is refused and changes nothing.
pub(super) fn replace(path: &Path, text: &[u8], limit: u64) -> Result<(), LedgerError> {
    let bytes = text.len() as u64;
    if bytes > limit {
        return Err(LedgerError::TooLarge { path: path.into(), bytes, limit });
    }
    let temporary = temporary(path);
    let written = write_temporary(&temporary, text)
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(|error| LedgerError::io(path, error));
    if let Err(error) = written {
        match fs::remove_file(&temporary) {
            Err(cleanup) if cleanup.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(file = %temporary.display(), %cleanup, "cannot remove an unfinished file");
            }
            Ok(()) | Err(_) => {}
        }
        return Err(error);
    }
    sync_directory(path)
}

/// Removes the temporary file of an interrupted save.
pub(crate) fn remove_temporary(path: &Path) -> Result<(), LedgerError> {
    let temporary = temporary(path);
    match fs::remove_file(&temporary) {
        Ok(()) => {
            tracing::warn!(file = %temporary.display(), "a save was interrupted; the previous file is used");
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(LedgerError::io(&temporary, error)),
    }
}

/// Gives the file a second name, `<name>.corrupt-<time>`, which stays when the first is replaced.
///
/// The first name stays as well. A missing file at the next start means that a person removed it, and a crash at
/// this point must not look like that.
pub(crate) fn keep_aside(path: &Path, now: jiff::Timestamp) -> Result<PathBuf, LedgerError> {
    keep_aside_by(|from, to| fs::hard_link(from, to), path, now)
}

fn keep_aside_by(
    link: impl Fn(&Path, &Path) -> io::Result<()>,
    path: &Path,
    now: jiff::Timestamp,
) -> Result<PathBuf, LedgerError> {
    let stamp = now.strftime("%Y%m%dT%H%M%SZ");
    for attempt in 0..u32::MAX {
        let suffix = if attempt == 0 { String::new() } else { format!("-{attempt}") };
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".corrupt-{stamp}{suffix}"));
        let kept = PathBuf::from(name);
        // Not every file system has hard links.
        let done = match link(path, &kept) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => copy(path, &kept),
            linked @ (Ok(()) | Err(_)) => linked,
        };
        match done {
            Ok(()) => {
                sync_directory(path)?;
                return Ok(kept);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(LedgerError::io(&kept, error)),
        }
    }
    Err(LedgerError::io(path, io::Error::other("no free name to set it aside under")))
}

/// Copies a file to a free name, whole or not at all.
fn copy(path: &Path, to: &Path) -> io::Result<()> {
    // Opening a pipe would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut from = File::open(path)?;
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let copied = io::copy(&mut from, &mut copy).and_then(|_| copy.sync_all());
    if copied.is_err() {
        let _ = fs::remove_file(to);
    }
    copied
}

fn write_temporary(temporary: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    agentiso_sys::fault::write("ledger.write")?;
    file.write_all(text)?;
    agentiso_sys::fault::write("ledger.sync")?;
    file.sync_all()
}

pub(super) fn sync_directory(of: &Path) -> Result<(), LedgerError> {
    let directory = of.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|file| file.sync_all()).map_err(|error| LedgerError::io(directory, error))
}

pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn replaced_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        replace(&path, b"one", 3).unwrap();
        replace(&path, b"two", 3).unwrap();
        assert_eq!(read(&path, 3).unwrap(), Content::Text("two".to_owned()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn writing_refuses_what_reading_would_refuse() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        replace(&path, b"abc", 3).unwrap();
        let refused = replace(&path, b"abcd", 3).unwrap_err();
        assert!(matches!(refused, LedgerError::TooLarge { bytes: 4, limit: 3, .. }), "{refused}");
        assert_eq!(read(&path, 3).unwrap(), Content::Text("abc".to_owned()));
        assert!(matches!(read(&path, 2).unwrap(), Content::Unusable(_)));
    }

    #[test]
    fn pipes_and_binary_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
        assert!(matches!(read(&path, 9).unwrap(), Content::Unusable(_)));
        assert!(matches!(read(dir.path(), 9).unwrap(), Content::Unusable(_)));
        assert_eq!(read(&dir.path().join("none"), 9).unwrap(), Content::Absent);
    }

    #[test]
    fn full_disk_leaves_no_temporary_file() {
        // /dev/full accepts the bytes and refuses them when they are written.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        replace(&path, b"old", 9).unwrap();
        std::os::unix::fs::symlink("/dev/full", dir.path().join("state.json.tmp")).unwrap();
        assert!(matches!(replace(&path, b"new", 9), Err(LedgerError::NoSpace { .. })));
        assert_eq!(read(&path, 9).unwrap(), Content::Text("old".to_owned()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn kept_copies_never_replace_each_other() {
        let now = "2026-03-01T12:00:00Z".parse().unwrap();
        let refused = |_: &Path, _: &Path| Err(io::ErrorKind::Unsupported.into());
        type Link = fn(&Path, &Path) -> io::Result<()>;
        for link in [(|from, to| fs::hard_link(from, to)) as Link, refused] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("state.json");
            for text in ["one", "two"] {
                replace(&path, text.as_bytes(), 9).unwrap();
                let kept = keep_aside_by(link, &path, now).unwrap();
                assert_eq!((fs::read_to_string(kept).unwrap(), path.exists()), (text.to_owned(), true));
            }
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        }
    }
}
