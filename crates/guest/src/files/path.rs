//! Checks paths that the host sends.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use agentiso_protocol::limits;

use super::error::FileError;

/// An absolute path without zero bytes. Any other byte is allowed, as in Linux itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPath(PathBuf);

impl GuestPath {
    /// Checks a path from the host.
    pub fn parse(bytes: &[u8]) -> Result<Self, FileError> {
        if bytes.first() == Some(&b'/') && bytes.len() <= limits::MAX_PATH_BYTES && !bytes.contains(&0) {
            Ok(Self(PathBuf::from(OsStr::from_bytes(bytes))))
        } else {
            Err(FileError::Path { path: String::from_utf8_lossy(bytes).chars().take(200).collect() })
        }
    }

    /// The path for system calls.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    pub(super) fn display(&self) -> String {
        self.0.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::GuestPath;

    #[test]
    fn agent_paths_are_absolute_without_zero_bytes() {
        for bad in [&b""[..], b"a", b"./a", b"/a\0b", &[b'/'; 4096]] {
            assert!(GuestPath::parse(bad).is_err(), "{bad:?}");
        }
        assert!(GuestPath::parse(b"/a\xff\nb").is_ok());
    }
}
