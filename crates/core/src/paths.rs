//! Paths inside a guest.

use std::fmt;

use thiserror::Error;

/// The kernel's PATH_MAX without its terminating NUL.
pub const MAX_PATH_LEN: usize = 4095;

/// An absolute path inside a guest. It may hold `..`, because the guest's kernel resolves it within the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPath(String);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GuestPathError {
    #[error("the path must not be empty")]
    Empty,
    #[error("the path {0:?} is relative; give an absolute path such as \"/workspace/{0}\"")]
    Relative(String),
    #[error("the path contains a NUL byte")]
    Nul,
    #[error("the path has {0} bytes; at most {MAX_PATH_LEN} are allowed")]
    TooLong(usize),
}

impl GuestPath {
    pub fn parse(text: &str) -> Result<Self, GuestPathError> {
        if text.is_empty() {
            return Err(GuestPathError::Empty);
        }
        if text.len() > MAX_PATH_LEN {
            return Err(GuestPathError::TooLong(text.len()));
        }
        if text.contains('\0') {
            return Err(GuestPathError::Nul);
        }
        if !text.starts_with('/') {
            return Err(GuestPathError::Relative(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_without_nul_are_accepted() {
        assert!(GuestPath::parse("/workspace/ä b").is_ok());
        assert_eq!(GuestPath::parse(""), Err(GuestPathError::Empty));
        assert_eq!(GuestPath::parse("a"), Err(GuestPathError::Relative("a".to_owned())));
        assert_eq!(GuestPath::parse("/a\0"), Err(GuestPathError::Nul));
        assert_eq!(GuestPath::parse(&format!("/{}", "a".repeat(4095))), Err(GuestPathError::TooLong(4096)));
    }
}
