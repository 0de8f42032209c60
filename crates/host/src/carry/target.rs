//! The file of an export, which gets its name only when it is complete and on disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use agentiso_sys::files::{self, FileError};
use agentiso_vm::Target;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, openat, renameat_with};
use rustix::io::Errno;

use super::error::CarryError;

/// The file holds the memory of a VM, so only its owner may read it.
const PRIVATE: u32 = 0o600;

/// Refuses a target that cannot be written, before any work is done.
pub(super) fn refuse_existing(target: &Target) -> Result<(), CarryError> {
    match target.path.symlink_metadata() {
        Ok(found) if found.is_dir() || !target.replace => Err(CarryError::Exists(target.path.clone())),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn parent(target: &Target) -> &Path {
    target.path.parent().unwrap_or(Path::new("/"))
}

fn temporary(target: &Target) -> PathBuf {
    let name = target.path.file_name().unwrap_or_default().to_string_lossy();
    parent(target).join(format!(".{name}.{}", uuid::Uuid::new_v4().simple()))
}

/// A file that does not have its name yet. It is removed on drop unless it was published. Where the file system allows
/// it, the file has no name at all before, so that not even a crash leaves it behind.
#[derive(Debug)]
pub(super) struct Unnamed {
    target: Target,
    pub(super) file: File,
    /// Its temporary name, if it has one.
    temporary: Option<PathBuf>,
}

impl Unnamed {
    pub(super) fn create(target: &Target) -> Result<Self, CarryError> {
        refuse_existing(target)?;
        if let Ok(file) = nameless(parent(target)) {
            return Ok(Self { target: target.clone(), file, temporary: None });
        }
        let temporary = temporary(target);
        let file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(&temporary);
        let file = file.map_err(FileError::at("write", &target.path))?;
        Ok(Self { target: target.clone(), file, temporary: Some(temporary) })
    }

    /// Makes the file durable and gives it its name. Returns its size.
    pub(super) fn publish(mut self) -> Result<u64, CarryError> {
        let target = self.target.clone();
        let failed = || FileError::at("write", &target.path);
        self.file.sync_all().map_err(failed())?;
        let bytes = self.file.metadata().map_err(failed())?.len();
        let temporary = match self.temporary.clone() {
            Some(temporary) => temporary,
            None => {
                let temporary = temporary(&target);
                give_name(&self.file, &temporary).map_err(failed())?;
                self.temporary = Some(temporary.clone());
                temporary
            }
        };
        let flags = if target.replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &temporary, CWD, &target.path, flags) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(CarryError::Exists(target.path)),
            // This file system cannot refuse to replace a file, so the check from before has to do.
            Err(Errno::INVAL | Errno::NOSYS) => {
                refuse_existing(&target)?;
                fs::rename(&temporary, &target.path).map_err(failed())?;
            }
            Err(error) => return Err(failed()(error.into()).into()),
        }
        files::sync_dir(parent(&target))?;
        Ok(bytes)
    }
}

fn nameless(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(openat(CWD, directory, flags, Mode::from_raw_mode(PRIVATE))?.into())
}

fn give_name(file: &File, name: &Path) -> io::Result<()> {
    let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, descriptor, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        // A published file is no longer found under its temporary name.
        if let Some(temporary) = &self.temporary
            && let Err(error) = files::remove_file(temporary)
        {
            tracing::warn!(%error, "could not remove an unfinished export");
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
    fn export_file_gets_its_name_when_complete() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target { path: dir.path().join("x"), replace: false };
        let mut unnamed = Unnamed::create(&target).unwrap();
        unnamed.file.write_all(b"content").unwrap();
        if unnamed.temporary.is_none() {
            assert_eq!(names(dir.path()), Vec::<String>::new(), "a crash would leave nothing");
        }
        assert!(!target.path.exists());
        assert_eq!(unnamed.publish().unwrap(), 7);
        assert_eq!(names(dir.path()), ["x"]);
        assert_eq!(fs::read(&target.path).unwrap(), b"content");
        let mode = std::os::unix::fs::PermissionsExt::mode(&target.path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, PRIVATE);
    }

    #[test]
    fn temporarily_named_file_is_renamed_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target { path: dir.path().join("x"), replace: false };
        let temporary = temporary(&target);
        let named = |path: &Path| Unnamed {
            target: target.clone(),
            file: File::create(path).unwrap(),
            temporary: Some(path.to_owned()),
        };
        drop(named(&temporary));
        assert_eq!(names(dir.path()), Vec::<String>::new());
        named(&temporary).publish().unwrap();
        assert_eq!(names(dir.path()), ["x"]);
    }

    #[test]
    fn dropped_export_file_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        drop(Unnamed::create(&Target { path: dir.path().join("x"), replace: false }).unwrap());
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }

    #[test]
    fn existing_file_is_replaced_only_on_request() {
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
