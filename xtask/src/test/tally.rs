//! Counts of passed, failed and skipped tests, with the reasons of skips.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    /// `name: reason`, one for each.
    pub(crate) skipped: Vec<String>,
    pub(crate) failures: Vec<String>,
}

impl Tally {
    pub(crate) fn pass(&mut self) {
        self.passed += 1;
    }

    pub(crate) fn fail(&mut self, name: impl Into<String>) {
        self.failed += 1;
        self.failures.push(name.into());
    }

    pub(crate) fn skip(&mut self, line: impl Into<String>) {
        self.skipped.push(line.into());
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
    }

    /// A test that skips itself succeeds, so its runner has counted it as passed.
    pub(crate) fn turn_passes_into_skips(&mut self, lines: Vec<String>) {
        self.passed = self.passed.saturating_sub(u32::try_from(lines.len()).unwrap_or(u32::MAX));
        self.skipped.extend(lines);
    }

    /// Reads a closing line of this form, as client scripts print it.
    pub(crate) fn parse(line: &str) -> Option<(u32, u32, u32)> {
        let mut numbers = line.trim().split(", ").zip(["passed", "failed", "skipped"]).map(|(part, word)| {
            let (number, rest) = part.split_once(' ')?;
            (rest == word).then(|| number.parse::<u32>().ok())?
        });
        let found = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(found)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len())
    }
}

/// The file to which tests append why they could not run. Lines that it has at the start belong to the caller and count
/// as well.
#[derive(Debug)]
pub(crate) struct SkipLog {
    path: PathBuf,
    seen: usize,
}

impl SkipLog {
    /// The caller's file if there is one, else an empty one at `fallback`. Also gives the lines in it.
    pub(crate) fn open(given: Option<PathBuf>, fallback: &Path) -> Result<(Self, Vec<String>)> {
        let path = match given {
            Some(path) => path,
            None => {
                std::fs::write(fallback, "").with_context(|| format!("writing {}", fallback.display()))?;
                fallback.to_owned()
            }
        };
        let mut log = Self { path, seen: 0 };
        let carried = log.new_lines()?;
        Ok((log, carried))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The lines since the last call.
    pub(crate) fn new_lines(&mut self) -> Result<Vec<String>> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("reading {}", self.path.display())),
        };
        let lines: Vec<String> = text.lines().skip(self.seen).map(str::to_owned).collect();
        self.seen += lines.len();
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_line_can_be_parsed_back() {
        let mut tally = Tally { passed: 7, ..Tally::default() };
        tally.fail("a");
        tally.turn_passes_into_skips(vec!["b: no network".to_owned()]);
        assert_eq!(tally.to_string(), "6 passed, 1 failed, 1 skipped");
        assert_eq!(Tally::parse(&tally.to_string()), Some((6, 1, 1)));
    }

    #[test]
    fn other_lines_are_no_closing_line() {
        for line in [
            "",
            "3 passed",
            "3 passed, 1 failed",
            "x passed, 1 failed, 2 skipped",
            "1 failed, 3 passed, 0 skipped",
        ] {
            assert_eq!(Tally::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn earlier_skip_lines_are_not_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("skips");
        std::fs::write(&path, "advisories: no network\n").unwrap();
        let (mut log, carried) = SkipLog::open(Some(path.clone()), Path::new("/nonexistent")).unwrap();
        assert_eq!(carried, ["advisories: no network"]);
        std::fs::write(&path, "advisories: no network\nkvm: none here\n").unwrap();
        assert_eq!(log.new_lines().unwrap(), ["kvm: none here"]);
        assert!(log.new_lines().unwrap().is_empty());
    }
}
