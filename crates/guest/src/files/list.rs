//! Lists a directory, or several levels of directories, in batches.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use agentiso_protocol::limits;
use agentiso_protocol::schema::v1;
use bytes::Bytes;

use super::error::{FileError, WithPath as _};
use super::info::to_wire;
use super::path::GuestPath;

/// The most entries to visit for one listing, so that a pattern that matches nothing comes to an end too.
const MAX_VISITED: u32 = 1_000_000;

/// The filter of a listing.
#[derive(Debug)]
pub struct ListFilter {
    most: u32,
    levels: u32,
    pattern: Option<Bytes>,
}

impl ListFilter {
    /// Checks a request from the host.
    pub fn parse(request: &v1::ListDirRequest) -> Result<Self, FileError> {
        if request.glob.len() > limits::MAX_GLOB_BYTES {
            return Err(FileError::LongPattern);
        }
        Ok(Self {
            most: if request.limit == 0 {
                limits::MAX_DIR_ENTRIES
            } else {
                request.limit.min(limits::MAX_DIR_ENTRIES)
            },
            levels: request.depth.clamp(1, limits::MAX_LIST_DEPTH),
            pattern: (!request.glob.is_empty()).then(|| request.glob.clone()),
        })
    }

    /// Compares a pattern with a slash with the whole path, as in `.gitignore`, and any other with the name.
    fn includes(&self, path: &[u8]) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        if pattern.contains(&b'/') {
            return fast_glob::glob_match(pattern, path);
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        fast_glob::glob_match(pattern, name)
    }
}

/// Sends the wanted entries in batches: upper levels first, unordered within a level. Other file systems are not
/// entered.
pub fn list(
    path: &GuestPath,
    wanted: &ListFilter,
    mut send: impl FnMut(v1::ListDirBatch) -> bool,
) -> Result<(), FileError> {
    let root = path.as_path();
    let device = fs::metadata(root).with_path(root)?.dev();
    let (mut left, mut visited) = (wanted.most, 0);
    let mut batch = v1::ListDirBatch::default();
    let mut waiting = VecDeque::from([(Vec::new(), 1)]);
    while let Some((prefix, level)) = waiting.pop_front() {
        let directory = root.join(OsStr::from_bytes(&prefix));
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            // The directory was removed or replaced meanwhile.
            Err(error) if level > 1 && has_gone(&error) => continue,
            Err(error) => return Err(error).with_path(&directory),
        };
        for entry in entries {
            let entry = entry.with_path(&directory)?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if has_gone(&error) => continue,
                Err(error) => return Err(error).with_path(&entry.path()),
            };
            visited += 1;
            let name = join(&prefix, entry.file_name().as_bytes());
            if metadata.is_dir() && level < wanted.levels && metadata.dev() == device {
                if fits(root, &name) {
                    waiting.push_back((name.clone(), level + 1));
                } else {
                    batch.truncated = true;
                }
            }
            let included = wanted.includes(&name);
            if (included && left == 0) || visited > MAX_VISITED {
                batch.truncated = true;
                waiting.clear();
                break;
            }
            if included {
                left -= 1;
                batch.entries.push(v1::DirEntry { name: name.into(), info: Some(to_wire(&metadata)) });
            }
            if batch.entries.len() == limits::DIR_BATCH_ENTRIES {
                let truncated = batch.truncated;
                let full = std::mem::take(&mut batch);
                if !send(full) {
                    return Err(FileError::Cancelled);
                }
                batch.truncated = truncated;
            }
        }
    }
    if send(batch) { Ok(()) } else { Err(FileError::Cancelled) }
}

fn has_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn join(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
}

fn fits(root: &Path, name: &[u8]) -> bool {
    root.as_os_str().len() + 1 + name.len() <= limits::MAX_PATH_BYTES
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;

    use agentiso_protocol::limits;
    use agentiso_protocol::schema::v1::ListDirRequest;

    use super::{ListFilter, list};
    use crate::files::GuestPath;

    fn names(path: &std::path::Path, request: ListDirRequest) -> (Vec<String>, bool) {
        let path = GuestPath::parse(path.as_os_str().as_bytes()).expect("a path");
        let wanted = ListFilter::parse(&request).expect("a request");
        let (mut names, mut truncated) = (Vec::new(), false);
        list(&path, &wanted, |batch| {
            names.extend(batch.entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()));
            truncated |= batch.truncated;
            true
        })
        .expect("listed");
        names.sort_unstable();
        (names, truncated)
    }

    #[test]
    fn listing_honours_depth_and_glob() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("src/deep")).expect("made");
        for file in ["a.rs", ".hidden", "src/b.rs", "src/deep/c.rs", "src/deep/d.txt"] {
            fs::write(dir.path().join(file), "").expect("written");
        }
        symlink(".", dir.path().join("loop")).expect("linked");
        let listed = |depth, glob: &'static str| {
            names(dir.path(), ListDirRequest { depth, glob: glob.into(), ..ListDirRequest::default() }).0
        };
        assert_eq!(listed(0, ""), [".hidden", "a.rs", "loop", "src"]);
        assert_eq!(listed(1, ""), listed(0, ""));
        assert_eq!(listed(2, ""), [".hidden", "a.rs", "loop", "src", "src/b.rs", "src/deep"]);
        assert_eq!(listed(9, "*.rs"), ["a.rs", "src/b.rs", "src/deep/c.rs"]);
        assert_eq!(listed(9, "src/**/*.rs"), ["src/b.rs", "src/deep/c.rs"]);
        assert_eq!(listed(9, "src/*.{rs,txt}"), ["src/b.rs"]);
        assert_eq!(listed(1, "*.rs"), ["a.rs"]);
        assert_eq!(listed(9, "[x").len(), 0);
    }

    #[test]
    fn listing_beyond_limit_is_marked_truncated() {
        let dir = tempfile::tempdir().expect("a directory");
        for number in 0..5 {
            fs::write(dir.path().join(number.to_string()), "").expect("written");
        }
        let request = |limit| ListDirRequest { limit, ..ListDirRequest::default() };
        assert_eq!((names(dir.path(), request(5)).0.len(), names(dir.path(), request(5)).1), (5, false));
        assert_eq!((names(dir.path(), request(4)).0.len(), names(dir.path(), request(4)).1), (4, true));
        let glob = vec![b'x'; limits::MAX_GLOB_BYTES + 1].into();
        assert!(ListFilter::parse(&ListDirRequest { glob, ..ListDirRequest::default() }).is_err());
    }
}
