//! Access to host files that a jailed program opens by name, although it runs as a user of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::kind::Jail;
use crate::files::FileError;

/// Permission bits for files that a jailed program has to read. The files are in directories that only root may enter.
const READABLE: u32 = 0o444;

/// Gives a file or directory to a program's user.
pub fn give_to(jail: Jail, uid: u32, path: &Path) -> Result<(), FileError> {
    match jail {
        Jail::Users => chown(path, Some(uid), Some(uid)).map_err(FileError::at("give away", path)),
        Jail::UserNamespace | Jail::Landlock | Jail::None => Ok(()),
    }
}

/// Makes a file that was given away ours again.
pub fn take_back(path: &Path) -> Result<(), FileError> {
    let us = rustix::process::geteuid().as_raw();
    let owner = fs::metadata(path).map_err(FileError::at("read", path))?.uid();
    if owner == us {
        return Ok(());
    }
    let group = rustix::process::getegid().as_raw();
    chown(path, Some(us), Some(group)).map_err(FileError::at("take back", path))
}

/// Whether a program's user can read a file that is shown in its jail.
fn is_readable(jail: Jail, path: &Path) -> Result<bool, FileError> {
    match jail {
        Jail::Users => {
            let mode = fs::metadata(path).map_err(FileError::at("read", path))?.mode();
            Ok(mode & READABLE == READABLE)
        }
        Jail::UserNamespace | Jail::Landlock | Jail::None => Ok(true),
    }
}

/// A version of a foreign file that a program's user can read: the file itself, or a copy in `dir` named by its hash.
pub fn readable_copy(jail: Jail, path: &Path, dir: &Path, sha256: &str) -> Result<PathBuf, FileError> {
    if is_readable(jail, path)? {
        return Ok(path.to_owned());
    }
    let copy = dir.join(format!(".boot-{sha256}"));
    if !copy.exists() {
        let content = fs::read(path).map_err(FileError::at("read", path))?;
        crate::files::make_private_dir(dir)?;
        crate::files::write_durably(&copy, &content)?;
    }
    make_readable(jail, &copy)?;
    Ok(copy)
}

/// Lets a program's user read a file of ours.
pub fn make_readable(jail: Jail, path: &Path) -> Result<(), FileError> {
    if is_readable(jail, path)? {
        return Ok(());
    }
    let mode = fs::metadata(path).map_err(FileError::at("read", path))?.mode();
    let readable = fs::Permissions::from_mode((mode & 0o7777) | READABLE);
    fs::set_permissions(path, readable).map_err(FileError::at("make readable", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_kernel_is_copied_and_left_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("vmlinuz");
        fs::write(&kernel, "kernel").unwrap();
        fs::set_permissions(&kernel, fs::Permissions::from_mode(0o600)).unwrap();
        let own = dir.path().join("own");
        let copy = readable_copy(Jail::Users, &kernel, &own, "abc").unwrap();
        assert_eq!(
            (copy.parent().unwrap(), fs::read(&copy).unwrap().as_slice()),
            (own.as_path(), b"kernel".as_slice())
        );
        assert_eq!(fs::metadata(&copy).unwrap().mode() & READABLE, READABLE);
        assert_eq!(fs::metadata(&kernel).unwrap().mode() & 0o777, 0o600);
        assert_eq!(readable_copy(Jail::UserNamespace, &kernel, &own, "abc").unwrap(), kernel);
    }
}
