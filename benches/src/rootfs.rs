//! The image's root file system as a directory, for the containers that agentiso is compared with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::program;

/// Time for some hundred megabytes on a slow disk.
const LIMIT: Duration = Duration::from_secs(600);

/// Unpacks an image's disk without mounting it, which would need root. An earlier result for the same disk is reused.
pub(crate) fn unpacked(disk: &Path, cache: &Path) -> Result<PathBuf> {
    let qemu_img = program::find("qemu-img").context("qemu-img is not installed")?;
    let debugfs = program::find("debugfs").context("debugfs is not installed")?;
    let stamp = stamp(disk)?;
    let stamp_file = cache.join("rootfs.stamp");
    let rootfs = cache.join("rootfs");
    if fs::read_to_string(&stamp_file).is_ok_and(|text| text == stamp) {
        return Ok(rootfs);
    }
    for old in [&rootfs, &cache.join("rootfs.new")] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("removing {}", old.display()))?;
        }
    }
    let new = cache.join("rootfs.new");
    fs::create_dir_all(&new).with_context(|| format!("creating {}", new.display()))?;
    let raw = cache.join("rootfs.raw");
    program::run(Command::new(qemu_img).args(["convert", "-O", "raw"]).arg(disk).arg(&raw), LIMIT)?;
    // debugfs has its own quoting and the cache path may be arbitrary, so the target is the current directory.
    let unpacked =
        program::run(Command::new(debugfs).args(["-R", "rdump / ."]).arg(&raw).current_dir(&new), LIMIT);
    fs::remove_file(&raw).with_context(|| format!("removing {}", raw.display()))?;
    unpacked?;
    anyhow::ensure!(new.join("bin/sh").exists(), "the image was unpacked without a shell");
    fs::rename(&new, &rootfs).with_context(|| format!("renaming {}", new.display()))?;
    fs::write(&stamp_file, stamp).with_context(|| format!("writing {}", stamp_file.display()))?;
    Ok(rootfs)
}

/// Distinguishes disks of the same name.
fn stamp(disk: &Path) -> Result<String> {
    let metadata = fs::metadata(disk).with_context(|| format!("reading {}", disk.display()))?;
    Ok(format!("{} {:?}", metadata.len(), metadata.modified().context("files have times")?))
}
