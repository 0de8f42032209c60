//! Replaces text in a file.

use agentiso_protocol::limits;
use memchr::memmem;

use super::error::FileError;
use super::path::GuestPath;
use super::read::read;
use super::replace::Replacement;

/// Replaces the first occurrence of `old`, or all of them. Returns how many.
pub fn edit(path: &GuestPath, old: &[u8], new: &[u8], all: bool) -> Result<u64, FileError> {
    if old.is_empty() {
        return Err(FileError::EmptyPattern);
    }
    let limit = limits::MAX_EDIT_FILE_BYTES;
    let too_large = || FileError::TooLarge { path: path.display(), limit };
    let mut content = Vec::new();
    read(path, 0, limit + 1, |chunk| {
        content.extend_from_slice(&chunk.data);
        true
    })?;
    if content.len() as u64 > limit {
        return Err(too_large());
    }
    let most = if all { usize::MAX } else { 1 };
    let mut result = Vec::with_capacity(content.len());
    let (mut from, mut count) = (0, 0);
    for at in memmem::find_iter(&content, old).take(most) {
        result.extend_from_slice(&content[from..at]);
        result.extend_from_slice(new);
        if result.len() as u64 > limit {
            return Err(too_large());
        }
        from = at + old.len();
        count += 1;
    }
    if count == 0 {
        return Err(FileError::NoMatch { path: path.display() });
    }
    result.extend_from_slice(&content[from..]);
    if result.len() as u64 > limit {
        return Err(too_large());
    }
    let mut replacement = Replacement::begin(path.as_path(), None)?;
    replacement.write(&result)?;
    replacement.commit()?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    use super::edit;
    use crate::files::{FileError, GuestPath};

    #[test]
    fn edit_replaces_first_or_all_occurrences() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("f");
        fs::write(&file, b"a\xffa a").expect("written");
        let path = GuestPath::parse(file.as_os_str().as_bytes()).expect("a path");
        assert_eq!(edit(&path, b"a", b"bb", false).expect("edited"), 1);
        assert_eq!(fs::read(&file).expect("read"), b"bb\xffa a");
        assert_eq!(edit(&path, b"a", b"", true).expect("edited"), 2);
        assert_eq!(fs::read(&file).expect("read"), b"bb\xff ");
        assert!(matches!(edit(&path, b"a", b"", true), Err(FileError::NoMatch { .. })));
        assert!(matches!(edit(&path, b"", b"x", true), Err(FileError::EmptyPattern)));
    }

    #[test]
    fn edit_beyond_size_limit_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("f");
        fs::write(&file, vec![b'a'; 100_000]).expect("written");
        let path = GuestPath::parse(file.as_os_str().as_bytes()).expect("a path");
        let new = vec![b'b'; 1000];
        assert!(matches!(edit(&path, b"a", &new, true), Err(FileError::TooLarge { .. })));
        assert_eq!(fs::metadata(&file).expect("there").len(), 100_000);
    }
}
