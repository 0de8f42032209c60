//! Walks over a finished stage: measures its size, and collects the corrections for the ext4 image where the host's
//! user could not or should not own such files.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use agentiso_sys::files::FileContext;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::tree::{MAX_DEPTH, Stage, StageError};

const BLOCK: u64 = 4096;

/// A file of the image that differs from its stand-in on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Correction {
    /// Absolute, in the image.
    pub(crate) path: PathBuf,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// File type and permissions, as an inode holds them.
    pub(crate) mode: Option<u32>,
    pub(crate) xattrs: Vec<(OsString, Vec<u8>)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) corrections: Vec<Correction>,
    pub(crate) inodes: u64,
    /// The space of the contents, in whole blocks.
    pub(crate) bytes: u64,
}

impl Survey {
    /// Measures the stage. Directory times are set here, because every file put into a directory changed them.
    pub(crate) fn take(stage: &Stage) -> Result<Self, StageError> {
        let mut survey = Self::default();
        let mut seen = HashSet::new();
        survey.visit(stage, stage.path(), Path::new("/"), &mut seen)?;
        Ok(survey)
    }

    fn visit(
        &mut self,
        stage: &Stage,
        host: &Path,
        guest: &Path,
        seen: &mut HashSet<u64>,
    ) -> Result<(), StageError> {
        // A link to a directory leads deeper than the path of any entry states.
        if guest.components().count() > MAX_DEPTH + 1 {
            return Err(StageError::TooDeep { path: guest.to_owned() });
        }
        let metadata = host.symlink_metadata().at("inspect", host)?;
        if metadata.is_dir() {
            let mut names = fs::read_dir(host)
                .and_then(|entries| {
                    entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<Vec<_>, _>>()
                })
                .at("list", host)?;
            names.sort();
            for name in names {
                self.visit(stage, &host.join(&name), &guest.join(&name), seen)?;
            }
        }
        if !seen.insert(metadata.ino()) {
            return Ok(());
        }
        self.inodes += 1;
        self.bytes += metadata.len().max(1).div_ceil(BLOCK) * BLOCK;
        let Some(wanted) = stage.attributes.get(&metadata.ino()) else { return Ok(()) };
        if metadata.is_dir() {
            let time = Timespec { tv_sec: wanted.mtime, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, host, &times, AtFlags::SYMLINK_NOFOLLOW)
                .at("set the time of", host)?;
        }
        let mode = metadata.mode() & !0o7777 | wanted.mode & 0o7777;
        let correction = Correction {
            path: guest.to_owned(),
            uid: (metadata.uid() != wanted.uid).then_some(wanted.uid),
            gid: (metadata.gid() != wanted.gid).then_some(wanted.gid),
            mode: (metadata.mode() != mode).then_some(mode),
            xattrs: wanted.xattrs.clone(),
        };
        let empty = correction.uid.is_none()
            && correction.gid.is_none()
            && correction.mode.is_none()
            && correction.xattrs.is_empty();
        if !empty {
            self.corrections.push(correction);
        }
        Ok(())
    }
}
