//! A server of somebody who is not root, on a host where root has built the images: the binary and the cache are there
//! to be read, and only the host's own directory is theirs.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is built for everybody. Templates are not: each user makes their own.
const BUILT: [&str; 3] = ["images", "kernels", "initramfs"];

/// Gives the user a directory below `dir` to work in, and beside it what they may read.
///
/// Copies, because where tests are built may be closed to them.
pub(crate) fn settle(dir: &Path, user: u32, binary: &Path, cache: Option<&Path>) -> PathBuf {
    let copy = dir.join("agentiso");
    std::fs::copy(binary, &copy).expect("the binary is copied");
    if let Some(cache) = cache {
        copy_cache(cache, dir);
    }
    // The directory itself is private to whoever made it.
    chown(dir, Some(user), Some(user)).expect("root may give a directory away");
    copy
}

/// Gives the host a cache of its own, with what is built for everybody.
pub(crate) fn copy_cache(cache: &Path, dir: &Path) {
    std::fs::create_dir(cache_below(dir)).expect("a directory for the cache");
    for part in BUILT {
        let copied = Command::new("cp")
            .args(["-r", "--sparse=always", "--no-preserve=mode"])
            .args([cache.join(part), cache_below(dir).join(part)])
            .status();
        assert!(copied.is_ok_and(|status| status.success()), "{part} could not be copied");
    }
}

pub(crate) fn cache_below(dir: &Path) -> PathBuf {
    dir.join("cache")
}
