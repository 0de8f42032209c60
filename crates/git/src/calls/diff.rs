//! `git diff` of a working tree.

use agentiso_core::paths::GuestPath;

use super::READ_TIMEOUT;
use crate::redact::redact;
use crate::refs::RepoFile;
use crate::script::{Ran, Script};

/// Extra bytes of output, so that a credential at the cut is recognised and hidden.
const SLACK: u64 = 4096;

const TRUNCATED: &str = "\n[TRUNCATED]";

#[derive(Clone, Debug)]
pub struct Diff {
    pub path: GuestPath,
    /// Compare the index with the last commit, instead of the files with the index.
    pub staged: bool,
    /// Print statistics for each file instead of lines.
    pub stat: bool,
    pub file: Option<RepoFile>,
    pub max_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diffed {
    pub text: String,
    pub truncated: bool,
}

impl Diff {
    pub fn script(&self) -> Script {
        Script::new(&[include_str!("../scripts/diff.sh")], READ_TIMEOUT)
            .arg(self.path.as_str())
            .flag(self.staged)
            .flag(self.stat)
            .arg(self.file.as_ref().map(RepoFile::as_str).unwrap_or_default())
            .keeping(self.max_bytes.saturating_add(SLACK))
    }

    pub fn read(&self, ran: &Ran) -> Diffed {
        let max = usize::try_from(self.max_bytes).unwrap_or(usize::MAX);
        let mut text = redact(&String::from_utf8_lossy(&ran.stdout));
        let truncated = ran.stdout_total > self.max_bytes || text.len() > max;
        if truncated {
            text.truncate(text.floor_char_boundary(max));
            text.push_str(TRUNCATED);
        }
        Diffed { text, truncated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(output: &str, max_bytes: u64) -> Diffed {
        let path = GuestPath::parse("/workspace").unwrap();
        let diff = Diff { path, staged: false, stat: false, file: None, max_bytes };
        let kept = output.len().min(usize::try_from(max_bytes + SLACK).unwrap());
        let stdout = output.as_bytes()[..kept].to_vec();
        diff.read(&Ran { code: Some(0), stdout, stdout_total: output.len() as u64, ..Ran::default() })
    }

    #[test]
    fn long_diff_is_truncated_between_characters() {
        assert_eq!(read("+ä\n", 4), Diffed { text: "+ä\n".to_owned(), truncated: false });
        assert_eq!(read("+ää\n", 4), Diffed { text: "+ä\n[TRUNCATED]".to_owned(), truncated: true });
    }

    #[test]
    fn credential_at_the_cut_is_hidden() {
        let text = read("x https://user:secret@host/ y", 18).text;
        assert!(!text.contains("secret") && !text.contains("user"), "{text}");
    }

    proptest! {
        #[test]
        fn diff_never_exceeds_max_bytes(output in "(ä|€|x|\n){0,3000}", max in 1u64..2000) {
            let diffed = read(&output, max);
            prop_assert_eq!(diffed.truncated, output.len() as u64 > max);
            prop_assert!(diffed.text.len() <= max as usize + TRUNCATED.len());
        }
    }
}
