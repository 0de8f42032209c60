//! Constant shell scripts with arguments, and their results.

use std::time::Duration;

use crate::quote::quote;
use crate::redact::redact;

/// The beginning of every script.
pub(crate) const PRELUDE: &str = include_str!("scripts/prelude.sh");

/// The exit code of a script that refused; see [`Ran::refusal`].
const REFUSED: i32 = 64;
const MARK: &str = "agentiso:";

/// A shell script. Its text is constant; arguments from a client are positional parameters and never part of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    text: &'static [&'static str],
    arguments: Vec<String>,
    /// The process group is killed after this time.
    pub timeout: Duration,
    /// The number of output bytes that are kept.
    pub max_output: u64,
}

/// Enough for every output except a diff.
const MAX_OUTPUT: u64 = 64 * 1024;

impl Script {
    pub(crate) fn new(text: &'static [&'static str], timeout: Duration) -> Self {
        Self { text, arguments: Vec::new(), timeout, max_output: MAX_OUTPUT }
    }

    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn flag(self, set: bool) -> Self {
        self.arg(if set { "1" } else { "" })
    }

    pub(crate) fn keeping(mut self, max_output: u64) -> Self {
        self.max_output = max_output;
        self
    }

    /// The script as text for `/bin/sh -c`.
    pub fn line(&self) -> String {
        let mut line = "set --".to_owned();
        for argument in &self.arguments {
            line.push(' ');
            line.push_str(&quote(argument));
        }
        line.push('\n');
        line.push_str(PRELUDE);
        for part in self.text {
            line.push_str(part);
        }
        line
    }
}

/// The exit status and output of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    pub timed_out: bool,
    /// The beginning of its output.
    pub stdout: Vec<u8>,
    /// The total number of output bytes.
    pub stdout_total: u64,
    pub stderr: Vec<u8>,
}

impl Ran {
    pub fn succeeded(&self) -> bool {
        !self.timed_out && self.code == Some(0)
    }

    /// The rest of the output line that begins with `key` and a blank.
    pub(crate) fn value(&self, key: &str) -> Option<String> {
        let text = String::from_utf8_lossy(&self.stdout);
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).map(str::to_owned)
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.value(key)?.trim().parse().ok()
    }

    /// The reason if the script itself, and not git, refused: a code for programs and a text for people.
    pub(crate) fn refusal(&self) -> Option<(String, String)> {
        if self.timed_out || self.code != Some(REFUSED) {
            return None;
        }
        let text = String::from_utf8_lossy(&self.stderr);
        let line = text.lines().rev().find_map(|line| line.strip_prefix(MARK))?;
        let (word, words) = line.split_once(' ')?;
        Some((word.to_owned(), redact(words)))
    }

    /// Its output for display, standard error preferred: at most `limit` bytes from the end, without credentials.
    pub fn words(&self, limit: usize) -> String {
        let said = |bytes: &[u8]| redact(String::from_utf8_lossy(bytes).trim());
        let text = match said(&self.stderr) {
            complaint if complaint.is_empty() => said(&self.stdout),
            complaint => complaint,
        };
        let from = text.ceil_char_boundary(text.len().saturating_sub(limit));
        text[from..].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_parameters_and_never_text() {
        let script = Script::new(&["echo \"$1\"\n"], Duration::from_secs(1)).arg("'; rm -rf / #").flag(false);
        let line = script.line();
        assert!(line.starts_with("set -- ''\\''; rm -rf / #' ''\n"), "{line}");
        assert!(line.ends_with("echo \"$1\"\n"));
    }

    #[test]
    fn script_refusal_differs_from_failure() {
        let ran = |code, stderr: &str| Ran { code: Some(code), stderr: stderr.into(), ..Ran::default() };
        let refused = ran(64, "noise\nagentiso:no_commit it has no commit\n").refusal();
        assert_eq!(refused, Some(("no_commit".to_owned(), "it has no commit".to_owned())));
        assert_eq!(ran(1, "agentiso:x y\n").refusal(), None);
        assert_eq!(ran(64, "fatal: x\n").refusal(), None);
    }

    #[test]
    fn output_tail_is_cut_between_characters() {
        let ran = Ran { code: Some(1), stderr: "aää".into(), ..Ran::default() };
        assert_eq!(ran.words(100), "aää");
        assert_eq!(ran.words(3), "ä");
    }
}
