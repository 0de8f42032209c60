//! Where templates are kept: beside the images, unless those are only there to be read.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::files;

/// The shared directory if templates can be made in it, and otherwise the other one.
///
/// Images may have been built by root for everybody; the memory of a machine is its user's own.
pub fn templates_dir(shared: &Path, own: &Path) -> PathBuf {
    let is_ours = files::make_private_dir(shared).is_ok()
        && access(shared, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok();
    if is_ours { shared.to_owned() } else { own.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_beside_the_images_where_they_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, own) = (dir.path().join("shared/templates"), dir.path().join("own"));
        assert_eq!(templates_dir(&shared, &own), shared);
        assert!(shared.is_dir());
    }

    #[test]
    fn where_they_cannot_be_made_they_are_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        // In a file there is no directory, not even for root.
        let shared = dir.path().join("file/templates");
        std::fs::write(dir.path().join("file"), "").unwrap();
        let own = dir.path().join("own");
        assert_eq!(templates_dir(&shared, &own), own);
    }
}
