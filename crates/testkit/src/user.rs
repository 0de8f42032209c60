//! A host whose daemon runs as an ordinary user, while root has built the images: the binary and the cache are
//! readable, and only the host's directory belongs to the user.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts of the cache that all users share. Each user makes their own templates.
const BUILT: [&str; 3] = ["images", "kernels", "initramfs"];

/// Gives the directory to the user and puts copies of the binary and the cache into it.
///
/// Copies, because the user may have no access to the build directory.
pub(crate) fn settle(dir: &Path, user: u32, binary: &Path, cache: Option<&Path>) -> PathBuf {
    let copy = dir.join("agentiso");
    std::fs::copy(binary, &copy).expect("the binary is copied");
    if let Some(cache) = cache {
        copy_cache(cache, dir);
    }
    // The directory is private to its owner.
    chown(dir, Some(user), Some(user)).expect("root may give a directory away");
    copy
}

/// Gives the host its own copy of the shared parts of the cache.
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
