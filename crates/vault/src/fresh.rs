//! The new version of a note in a temporary file: it is complete and synced before it gets its name, and removed if it
//! never does.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use crate::error::{REPLACE, VaultError};
use crate::locked::LockedFolder;
use crate::root::{MAX_NOTE, identity};

/// The prefix of temporary files; lists of notes do not show them.
pub(crate) const TEMPORARY: &str = ".agentiso-";

const NEW_NOTE: Mode = Mode::from_raw_mode(0o644);

/// A temporary file. It is removed on drop, but a file that got its name by an exchange is not.
#[derive(Debug)]
pub(crate) struct Fresh<'a> {
    folder: &'a LockedFolder,
    name: String,
    file: File,
    own: (u64, u64),
}

impl<'a> Fresh<'a> {
    /// Writes a file beside the note `target`, with the permissions and owner of the file that it will replace.
    pub(crate) fn write(
        folder: &'a LockedFolder,
        target: &str,
        content: &[u8],
        like: Option<&Stat>,
    ) -> Result<Self, VaultError> {
        let path = folder.note(target);
        if content.len() as u64 > MAX_NOTE {
            let size = content.len() as u64;
            return Err(VaultError::TooLarge { path: path.to_string(), size, max: MAX_NOTE });
        }
        let name = format!("{TEMPORARY}{}.tmp", uuid::Uuid::new_v4().simple());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, &name, flags, Mode::from_raw_mode(0o600))
            .map_err(VaultError::at("write", &path))?;
        let own =
            rustix::fs::fstat(&file).map(|stat| identity(&stat)).map_err(VaultError::at("write", &path))?;
        let mut fresh = Self { folder, name, file: File::from(file), own };
        let written = fresh.file.write_all(content).and_then(|()| {
            fresh.look_like(like)?;
            fresh.file.sync_all()
        });
        written.map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => VaultError::at("write", &path)(errno),
            None => VaultError::Io { action: "write", path: path.to_string(), source: error },
        })?;
        Ok(fresh)
    }

    fn look_like(&self, note: Option<&Stat>) -> Result<(), Errno> {
        let Some(note) = note else { return rustix::fs::fchmod(&self.file, NEW_NOTE) };
        let (user, group) = (Uid::from_raw(note.st_uid), Gid::from_raw(note.st_gid));
        match rustix::fs::fchown(&self.file, Some(user), Some(group)) {
            // Only root may change owners; another user's note in our folder becomes ours.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(note.st_mode) & Mode::from_raw_mode(0o777))
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Replaces the content of this unused file, for processes that have opened it meanwhile.
    pub(crate) fn pretend(&self, content: &[u8]) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all_at(content, 0)
    }

    /// The identity of the file that has the temporary name at present.
    pub(crate) fn displaced(&self) -> Option<(u64, u64)> {
        let stat = rustix::fs::statat(self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        stat.map(|stat| identity(&stat)).ok()
    }

    /// Whether this file has its own temporary name (again).
    pub(crate) fn is_itself(&self) -> bool {
        self.displaced() == Some(self.own)
    }

    /// Renames it to the note, if no such note exists.
    pub(crate) fn publish_new(self, target: &str) -> Result<(), VaultError> {
        self.publish(target, RenameFlags::NOREPLACE)
    }

    /// Renames it to the note, replacing any existing one.
    pub(crate) fn publish_over(self, target: &str) -> Result<(), VaultError> {
        self.publish(target, RenameFlags::empty())
    }

    fn publish(self, target: &str, flags: RenameFlags) -> Result<(), VaultError> {
        rustix::fs::renameat_with(self.folder, &self.name, self.folder, target, flags)
            .map_err(VaultError::at(REPLACE, self.folder.note(target)))?;
        self.sync()
    }

    /// Syncs the folder, which makes renames durable.
    pub(crate) fn sync(&self) -> Result<(), VaultError> {
        rustix::fs::fsync(self.folder.as_fd())
            .map_err(VaultError::at("sync the folder of", self.folder.note(&self.name)))
    }

    /// Exchanges the names of this file and `target`.
    pub(crate) fn exchange(&self, target: &str) -> Result<(), Errno> {
        rustix::fs::renameat_with(self.folder, &self.name, self.folder, target, RenameFlags::EXCHANGE)
    }

    /// Renames the file with the temporary name to another, free name.
    pub(crate) fn keep_as(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat_with(self.folder, &self.name, self.folder, name, RenameFlags::NOREPLACE)
    }

    /// Removes the file that it was exchanged with.
    pub(crate) fn remove_displaced(self) -> Result<(), VaultError> {
        rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty())
            .map_err(VaultError::at("remove the old version", self.folder.note(&self.name)))
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        if self.is_itself() {
            // At worst a hidden file is left; the earlier error is the one to report.
            let _ = rustix::fs::unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}
