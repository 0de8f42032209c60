//! `git commit` of the staged files, or of everything.

use std::time::Duration;

use agentiso_core::paths::GuestPath;
use thiserror::Error;

use super::unlock;
use crate::redact::redact;
use crate::script::{Ran, Script};

/// A long timeout, because hooks may run tests.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(300);

/// The number of digits of a short commit id.
const SHORT: usize = 7;

/// The author of a commit, checked to fit on one line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    name: String,
    email: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("must not be blank or contain line breaks, '<' or '>'")]
pub struct AuthorError;

impl Author {
    /// Refuses characters that git would silently remove from a name or an address.
    pub fn check(text: &str) -> Result<(), AuthorError> {
        let bad = |c: char| c.is_control() || matches!(c, '<' | '>');
        if text.trim().is_empty() || text.contains(bad) { Err(AuthorError) } else { Ok(()) }
    }

    pub fn new(name: &str, email: &str) -> Result<Self, AuthorError> {
        Self::check(name)?;
        Self::check(email)?;
        Ok(Self { name: name.to_owned(), email: email.to_owned() })
    }
}

#[derive(Clone, Debug)]
pub struct Commit {
    pub path: GuestPath,
    pub message: String,
    /// Commits all changes, including new files.
    pub add_all: bool,
    /// Author and committer. `None`: the user in git's configuration, or agentiso.
    pub author: Option<Author>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    Nothing,
    Made { commit: String, short: String, branch: Option<String>, summary: String },
}

impl Commit {
    pub fn script(&self) -> Script {
        let (name, email) =
            self.author.as_ref().map(|author| (&*author.name, &*author.email)).unwrap_or_default();
        Script::new(
            &[include_str!("../scripts/identity.sh"), include_str!("../scripts/commit.sh")],
            COMMIT_TIMEOUT,
        )
        .arg(self.path.as_str())
        .arg(&*self.message)
        .flag(self.add_all)
        .arg(name)
        .arg(email)
    }

    /// Removes the locks of a commit that was killed.
    pub fn unlock(&self) -> Script {
        unlock(&self.path)
    }

    pub fn read(ran: &Ran) -> Committed {
        let Some(commit) = ran.value("commit") else { return Committed::Nothing };
        let text = String::from_utf8_lossy(&ran.stdout);
        let summary: Vec<&str> = text.lines().skip(2).collect();
        Committed::Made {
            short: commit.chars().take(SHORT).collect(),
            commit,
            branch: ran.value("branch").filter(|branch| !branch.is_empty()),
            summary: redact(summary.join("\n").trim()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_output_is_parsed_with_summary() {
        let stdout = b"commit 0123456789abcdef\nbranch main\n[main 0123456] x\n 1 file changed\n".to_vec();
        let made = Commit::read(&Ran { code: Some(0), stdout, ..Ran::default() });
        let expected = Committed::Made {
            commit: "0123456789abcdef".to_owned(),
            short: "0123456".to_owned(),
            branch: Some("main".to_owned()),
            summary: "[main 0123456] x\n 1 file changed".to_owned(),
        };
        assert_eq!(made, expected);
        let nothing = Ran { code: Some(0), stdout: b"nothing to commit\n".to_vec(), ..Ran::default() };
        assert_eq!(Commit::read(&nothing), Committed::Nothing);
    }

    #[test]
    fn invalid_author_is_refused() {
        assert!(Author::new("A B", "a@b").is_ok());
        for bad in ["", " ", "a\nb", "a<b", "a>b"] {
            assert!(Author::new(bad, "a@b").is_err() && Author::new("a", bad).is_err(), "{bad:?}");
        }
    }
}
