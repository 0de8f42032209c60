//! Chooses the directory for templates: beside the images, unless those are read-only.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use agentiso_sys::files;

/// The shared directory if templates can be made in it, otherwise the own one.
///
/// Images may have been built by root for all users; the memory of a VM belongs to its user.
pub fn templates_dir(shared: &Path, own: &Path) -> PathBuf {
    let is_ours = files::make_private_dir(shared).is_ok()
        && access(shared, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok();
    if is_ours { shared.to_owned() } else { own.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_templates_directory_is_preferred() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, own) = (dir.path().join("shared/templates"), dir.path().join("own"));
        assert_eq!(templates_dir(&shared, &own), shared);
        assert!(shared.is_dir());
    }

    #[test]
    fn unwritable_shared_directory_falls_back_to_own() {
        let dir = tempfile::tempdir().unwrap();
        // A file cannot contain a directory, not even for root.
        let shared = dir.path().join("file/templates");
        std::fs::write(dir.path().join("file"), "").unwrap();
        let own = dir.path().join("own");
        assert_eq!(templates_dir(&shared, &own), own);
    }
}
