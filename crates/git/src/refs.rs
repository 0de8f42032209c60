//! Validated names of branches and remotes, and paths inside a repository. A value of these types is neither an option
//! nor a refspec.

use std::fmt;

use agentiso_core::paths::MAX_PATH_LEN;
use thiserror::Error;

use crate::url::{GitUrl, UrlError};

/// The longest name. A branch is a file, and file names have this limit.
const MAX_REF_LEN: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RefError {
    #[error("must not be empty")]
    Empty,
    #[error("has {len} bytes; at most {max} are allowed")]
    TooLong { len: usize, max: usize },
    #[error("must not begin with '-': it would be taken for an option")]
    LeadingDash,
    #[error("contains {0:?}, which is not allowed")]
    BadCharacter(char),
    #[error("is not a name that git accepts: {0}")]
    Malformed(&'static str),
    #[error("is neither the name of a remote ({name}) nor a URL ({url})")]
    NeitherNameNorUrl { name: Box<RefError>, url: UrlError },
}

/// Shell metacharacters are refused in names from clients, although nothing is ever interpreted: such input is not
/// meant as a name.
pub(crate) fn is_shell_character(c: char) -> bool {
    matches!(c, ';' | '|' | '&' | '$' | '`' | '\'' | '"' | '\\' | '\r' | '\n')
}

fn check(text: &str) -> Result<(), RefError> {
    if text.is_empty() {
        return Err(RefError::Empty);
    }
    if text.len() > MAX_REF_LEN {
        return Err(RefError::TooLong { len: text.len(), max: MAX_REF_LEN });
    }
    if text.starts_with('-') {
        return Err(RefError::LeadingDash);
    }
    let is_bad = |c: char| {
        is_shell_character(c)
            || c.is_control()
            || c.is_whitespace()
            || matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '+')
    };
    if let Some(bad) = text.chars().find(|c| is_bad(*c)) {
        return Err(RefError::BadCharacter(bad));
    }
    let problem = if text.contains("..") {
        "two dots in a row"
    } else if text.contains("@{") || text == "@" {
        "an @ that means something else"
    } else if text.starts_with('/') || text.ends_with('/') || text.contains("//") {
        "an empty part between slashes"
    } else if text.ends_with('.') {
        "a dot at the end"
    } else if text.split('/').any(|part| part.starts_with('.') || part.ends_with(".lock")) {
        "a part that begins with a dot or ends in .lock"
    } else {
        return Ok(());
    };
    Err(RefError::Malformed(problem))
}

/// A branch (or a tag, where git accepts one instead).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchName(String);

impl BranchName {
    pub fn parse(text: &str) -> Result<Self, RefError> {
        check(text)?;
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The destination of a push: a remote by its name, or a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote(String);

impl Remote {
    pub fn parse(text: &str) -> Result<Self, RefError> {
        let Err(name) = check(text) else { return Ok(Self(text.to_owned())) };
        if name == RefError::LeadingDash || name == RefError::Empty {
            return Err(name);
        }
        match GitUrl::parse(text) {
            Ok(url) => Ok(Self(url.as_str().to_owned())),
            Err(url) => Err(RefError::NeitherNameNorUrl { name: Box::new(name), url }),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Remote {
    fn default() -> Self {
        Self("origin".to_owned())
    }
}

/// A file or directory of a repository. It is taken literally, never as a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoFile(String);

impl RepoFile {
    pub fn parse(text: &str) -> Result<Self, RefError> {
        if text.is_empty() {
            return Err(RefError::Empty);
        }
        if text.len() > MAX_PATH_LEN {
            return Err(RefError::TooLong { len: text.len(), max: MAX_PATH_LEN });
        }
        if text.starts_with('-') {
            return Err(RefError::LeadingDash);
        }
        if text.contains('\0') {
            return Err(RefError::BadCharacter('\0'));
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_branch_names_are_refused() {
        for good in ["main", "feature/x-1", "v1.2.3", "ä", "a@b", "dependabot/npm_and_yarn/x"] {
            assert!(BranchName::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-x",
            "--upload-pack=x",
            "a b",
            "a..b",
            "a~1",
            "a^",
            "a:b",
            "+a",
            "a\n",
            "a\0",
            "@",
            "a@{1}",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.",
            "$(x)",
            "`x`",
            "a;b",
            "a|b",
            "a&b",
            "'",
            "\"",
            "\\",
            "*",
        ] {
            assert!(BranchName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(BranchName::parse(&"x".repeat(256)).is_err());
    }

    #[test]
    fn remote_must_be_a_name_or_url() {
        assert_eq!(Remote::default().as_str(), "origin");
        for good in ["origin", "up/stream", "https://example.com/x.git", "git@example.com:x.git"] {
            assert_eq!(Remote::parse(good).map(|r| r.as_str().to_owned()).as_deref(), Ok(good));
        }
        for bad in ["", "-o", "ext::sh -c x", "file:///x", "/srv/x", "a b"] {
            assert!(Remote::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn file_names_must_not_look_like_options() {
        for good in ["a b", "it's", "*.rs", ":(top)x", "dir/", "/workspace/x", "ä\n"] {
            assert!(RepoFile::parse(good).is_ok(), "{good:?}");
        }
        for bad in ["", "-p", "a\0b"] {
            assert!(RepoFile::parse(bad).is_err(), "{bad:?}");
        }
    }
}
