//! Copies a directory of the host into a stage.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use agentiso_sys::files::{FileContext, FileError};

use super::tree::{Attributes, Stage, StageError};

/// Copies the tree at `source`. The owner `us` becomes root, because an unprivileged user's tree represents a tree of
/// root; other owners are kept.
pub(crate) fn copy_directory(stage: &mut Stage, source: &Path, us: (u32, u32)) -> Result<(), StageError> {
    let device = fs::metadata(source).at("inspect", source)?.dev();
    let mut links = HashMap::new();
    visit(stage, source, Path::new("."), us, device, &mut links)
}

fn visit(
    stage: &mut Stage,
    host: &Path,
    guest: &Path,
    us: (u32, u32),
    device: u64,
    links: &mut HashMap<u64, PathBuf>,
) -> Result<(), StageError> {
    let metadata = host.symlink_metadata().at("inspect", host)?;
    let attributes = Attributes {
        uid: if metadata.uid() == us.0 { 0 } else { metadata.uid() },
        gid: if metadata.gid() == us.1 { 0 } else { metadata.gid() },
        mode: metadata.mode() & 0o7777,
        mtime: metadata.mtime(),
        xattrs: Vec::new(),
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        stage.directory(guest, attributes)?;
        // File systems mounted inside (for example a running chroot's /proc) are not part of the root filesystem.
        if metadata.dev() != device {
            return Ok(());
        }
        let mut names = fs::read_dir(host)
            .and_then(|entries| {
                entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<Vec<_>, _>>()
            })
            .at("list", host)?;
        names.sort();
        for name in names {
            visit(stage, &host.join(&name), &guest.join(&name), us, device, links)?;
        }
        return Ok(());
    }
    if kind.is_symlink() {
        let target = fs::read_link(host).at("read", host)?;
        return stage.symlink(guest, &target, attributes);
    }
    if !kind.is_file() {
        return stage.skip_special();
    }
    if metadata.nlink() > 1 {
        if let Some(first) = links.get(&metadata.ino()) {
            let first = first.clone();
            return stage.hard_link(guest, &first);
        }
        links.insert(metadata.ino(), guest.to_owned());
    }
    let mut file = open_no_follow(host)?;
    stage.file(guest, attributes, &mut file)
}

fn open_no_follow(path: &Path) -> Result<File, FileError> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path).at("open", path)
}
