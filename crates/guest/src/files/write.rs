//! Writes an uploaded file.

use agentiso_protocol::schema::v1;
use bytes::Bytes;

use super::error::FileError;
use super::parents::Parents;
use super::path::GuestPath;
use super::replace::Replacement;

/// A part of an upload.
#[derive(Debug)]
pub enum Piece {
    /// The next bytes.
    Data(Bytes),
    /// The end of the upload, with its length.
    End(u64),
}

/// Writes the pieces that `next` delivers. The file changes only if the end was announced and all bytes before it came.
pub fn write(
    header: &v1::WriteFileHeader,
    mut next: impl FnMut() -> Option<Piece>,
) -> Result<u64, FileError> {
    let path = GuestPath::parse(&header.path)?;
    if let Some(mode) = header.mode
        && mode > 0o7777
    {
        return Err(FileError::Mode { mode });
    }
    let parents = if header.create_parents { Parents::make(path.as_path())? } else { Parents::none() };
    let mut replacement = Replacement::begin(path.as_path(), header.mode)?;
    let mut size = 0;
    loop {
        match next() {
            Some(Piece::Data(bytes)) => {
                replacement.write(&bytes)?;
                size += bytes.len() as u64;
            }
            Some(Piece::End(announced)) if announced == size => break,
            Some(Piece::End(_)) | None => return Err(FileError::CutOff { path: path.display() }),
        }
    }
    replacement.commit()?;
    parents.keep();
    Ok(size)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use agentiso_protocol::schema::v1::WriteFileHeader;

    use super::{Piece, write};
    use crate::files::FileError;

    fn put(path: &Path, mode: Option<u32>, pieces: Vec<Piece>) -> Result<u64, FileError> {
        let path = path.as_os_str().as_bytes().to_vec().into();
        let mut pieces = pieces.into_iter();
        write(&WriteFileHeader { path, mode, create_parents: true }, || pieces.next())
    }

    fn whole(text: &'static str) -> Vec<Piece> {
        vec![Piece::Data(text.into()), Piece::End(text.len() as u64)]
    }

    #[test]
    fn upload_without_end_changes_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        fs::write(&path, "old").expect("written");
        for pieces in [vec![], vec![Piece::Data("ne".into())], vec![Piece::Data("ne".into()), Piece::End(3)]]
        {
            assert!(matches!(put(&path, None, pieces), Err(FileError::CutOff { .. })));
            assert_eq!(fs::read_to_string(&path).expect("read"), "old");
            assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
        }
    }

    #[test]
    fn parents_of_failed_upload_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a/b/c/file");
        assert!(put(&path, None, vec![Piece::Data("half".into())]).is_err());
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
        fs::create_dir(dir.path().join("a")).expect("made");
        assert!(put(&path, None, vec![]).is_err());
        assert_eq!(fs::read_dir(dir.path().join("a")).expect("what was there stays").count(), 0);
        put(&path, None, whole("all")).expect("written");
    }

    #[test]
    fn write_follows_links_and_keeps_them() {
        let dir = tempfile::tempdir().expect("a directory");
        let link = dir.path().join("link");
        symlink("target", &link).expect("linked");
        put(&link, None, whole("one")).expect("written through a dangling link");
        put(&link, None, whole("two")).expect("written through a link");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read_to_string(dir.path().join("target")).expect("read"), "two");
    }

    #[test]
    fn symbolic_link_loop_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        symlink("b", dir.path().join("a")).expect("linked");
        symlink("a", dir.path().join("b")).expect("linked");
        let error = put(&dir.path().join("a"), None, whole("x")).expect_err("refused");
        assert_eq!(error.code(), agentiso_protocol::ErrorCode::LinkLoop);
    }

    #[test]
    fn file_mode_is_given_kept_or_0644() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a/b/c");
        let mode = || fs::metadata(&path).expect("there").permissions().mode() & 0o7777;
        put(&path, None, whole("x")).expect("written");
        assert_eq!(mode(), 0o644);
        put(&path, Some(0o4755), whole("x")).expect("written");
        assert_eq!(mode(), 0o4755);
        put(&path, None, whole("y")).expect("written");
        assert_eq!(mode(), 0o4755);
        assert!(matches!(put(&path, Some(0o10000), whole("x")), Err(FileError::Mode { .. })));
    }

    #[test]
    fn write_refuses_directories_and_devices() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(put(dir.path(), None, whole("x")), Err(FileError::IsDirectory { .. })));
        assert!(matches!(put(Path::new("/dev/null"), None, whole("x")), Err(FileError::NotRegular { .. })));
    }
}
