//! The file an export goes to: it has its name when it is whole and on disk, and not before.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::error::CarryError;
use crate::files::{self, FileError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub path: PathBuf,
    /// Whether a file that is there may go.
    pub replace: bool,
}

impl Target {
    /// A refusal that is certain, before any work was done for it.
    pub(super) fn refuse_taken(&self) -> Result<(), CarryError> {
        match self.path.symlink_metadata() {
            Ok(found) if found.is_dir() || !self.replace => Err(CarryError::Exists(self.path.clone())),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn parent(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

/// A file without its name yet. It is removed unless it gets it.
#[derive(Debug)]
pub(super) struct Unnamed {
    target: Target,
    path: PathBuf,
    pub(super) file: File,
}

impl Unnamed {
    pub(super) fn create(target: &Target) -> Result<Self, CarryError> {
        target.refuse_taken()?;
        let name = target.path.file_name().unwrap_or_default().to_string_lossy();
        let path = target.parent().join(format!(".{name}.{}", uuid::Uuid::new_v4().simple()));
        // The memory of a machine is in it: it is nobody else's to read.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(FileError::at("write", &target.path))?;
        Ok(Self { target: target.clone(), path, file })
    }

    /// Makes it durable and gives it its name. Returns its size.
    pub(super) fn publish(self) -> Result<u64, CarryError> {
        let target = &self.target.path;
        self.file.sync_all().map_err(FileError::at("sync", target))?;
        let bytes = self.file.metadata().map_err(FileError::at("read", target))?.len();
        let flags = if self.target.replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &self.path, CWD, target, flags) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(CarryError::Exists(target.clone())),
            // A file system that cannot promise it: what was looked at a moment ago must do.
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.target.refuse_taken()?;
                fs::rename(&self.path, target).map_err(FileError::at("write", target))?;
            }
            Err(error) => return Err(FileError::at("write", target)(error.into()).into()),
        }
        files::sync_dir(self.target.parent())?;
        Ok(bytes)
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        // Under its own name it is not found here any more.
        if let Err(error) = files::remove_file(&self.path) {
            tracing::warn!(%error, "a half-written export is left");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target { path: dir.path().join("x"), replace: false };
        let mut unnamed = Unnamed::create(&target).unwrap();
        unnamed.file.write_all(b"content").unwrap();
        assert!(!target.path.exists());
        assert_eq!(unnamed.publish().unwrap(), 7);
        assert_eq!(names(dir.path()), ["x"]);
    }

    #[test]
    fn one_that_is_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        drop(Unnamed::create(&Target { path: dir.path().join("x"), replace: false }).unwrap());
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }

    #[test]
    fn what_is_there_goes_only_when_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let keep = Target { path: path.clone(), replace: false };
        let late = Unnamed::create(&keep).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(matches!(Unnamed::create(&keep), Err(CarryError::Exists(_))));
        assert!(matches!(late.publish(), Err(CarryError::Exists(_))), "also if it came in between");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let replace = Target { path: path.clone(), replace: true };
        Unnamed::create(&replace).unwrap().publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert_eq!(names(dir.path()), ["x"]);
        let directory = Target { path: dir.path().to_owned(), replace: true };
        assert!(matches!(Unnamed::create(&directory), Err(CarryError::Exists(_))));
    }
}
