//! The model of one guest: files on its disk, and a counting process in its memory.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

/// The expected contents of a guest. Each file has a set of possible digests; `None` means that it may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    files: BTreeMap<String, BTreeSet<Option<String>>>,
    pub(crate) memory: Memory,
}

/// The counting process: it writes its token and its count to a file system in memory, so both show whether memory was
/// restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Memory {
    #[default]
    Empty,
    Counts {
        token: String,
        at_least: u64,
    },
    /// It was started by a call that got no answer.
    MayCount {
        token: String,
    },
}

/// The contents that were found in a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) token: Option<String>,
    pub(crate) count: Option<u64>,
    pub(crate) alive: bool,
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Contents {
    /// A write begins: the file may have the new digest as well from here on.
    pub(crate) fn write_begins(&mut self, file: &str, digest: &str) {
        let allowed = self.files.entry(file.to_owned()).or_insert_with(|| BTreeSet::from([None]));
        allowed.insert(Some(digest.to_owned()));
    }

    /// A write was acknowledged as durable.
    pub(crate) fn write_ends(&mut self, file: &str, digest: &str) {
        self.files.insert(file.to_owned(), BTreeSet::from([Some(digest.to_owned())]));
    }

    /// The VM ended: its processes are gone, its disk is not.
    pub(crate) fn lose_memory(&mut self) {
        self.memory = Memory::Empty;
    }

    /// All differences between the model and the guest.
    pub(crate) fn differences(&self, seen: &Seen) -> Vec<String> {
        let mut found = Vec::new();
        for (name, allowed) in &self.files {
            let there = seen.files.get(name).cloned();
            if !allowed.contains(&there) {
                found.push(format!("file {name} is {}, must be {}", shown(&there), any_of(allowed)));
            }
        }
        for name in seen.files.keys().filter(|name| !self.files.contains_key(*name)) {
            found.push(format!("file {name} is there, must be absent"));
        }
        found.extend(self.memory.difference(seen));
        found
    }

    /// Reduces the possible contents to those that were seen. Call it only after [`Self::differences`] found none.
    pub(crate) fn learn(&mut self, seen: &Seen) {
        for (name, allowed) in &mut self.files {
            *allowed = BTreeSet::from([seen.files.get(name).cloned()]);
        }
        self.files.retain(|_, allowed| !allowed.contains(&None));
        self.memory = match (&seen.token, seen.count) {
            (Some(token), Some(count)) => Memory::Counts { token: token.clone(), at_least: count },
            (None, _) | (_, None) => Memory::Empty,
        };
    }
}

impl Memory {
    fn difference(&self, seen: &Seen) -> Option<String> {
        let counts = |token: &str, at_least: u64| {
            if seen.token.as_deref() != Some(token) || !seen.alive {
                Some(format!("the counting process {token} is gone: {:?} alive {}", seen.token, seen.alive))
            } else if seen.count.is_none_or(|count| count < at_least) {
                Some(format!("the counter of {token} is at {:?}, was at {at_least} already", seen.count))
            } else {
                None
            }
        };
        match self {
            Self::Empty => seen.token.as_ref().map(|token| format!("process {token} runs, must be gone")),
            Self::Counts { token, at_least } => counts(token, *at_least),
            Self::MayCount { token } => seen.token.as_ref().and_then(|_| counts(token, 0)),
        }
    }
}

fn shown(digest: &Option<String>) -> String {
    digest.as_ref().map_or("absent".to_owned(), |digest| digest.chars().take(8).collect())
}

fn any_of(allowed: &BTreeSet<Option<String>>) -> String {
    allowed.iter().map(shown).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &[(&str, &str)]) -> Seen {
        let files = files.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect();
        Seen { files, ..Seen::default() }
    }

    fn acknowledged(files: &[(&str, &str)]) -> Contents {
        let mut contents = Contents::default();
        for (name, digest) in files {
            contents.write_begins(name, digest);
            contents.write_ends(name, digest);
        }
        contents
    }

    #[test]
    fn lost_file_is_noticed() {
        let contents = acknowledged(&[("f1", "aa"), ("f2", "bb")]);
        assert_eq!(contents.differences(&with(&[("f1", "aa"), ("f2", "bb")])), Vec::<String>::new());
        assert_eq!(contents.differences(&with(&[("f1", "aa")])), ["file f2 is absent, must be bb"]);
        assert_eq!(contents.differences(&with(&[("f1", "aa"), ("f2", "cc")])), ["file f2 is cc, must be bb"]);
    }

    #[test]
    fn file_from_another_time_is_noticed() {
        let contents = acknowledged(&[("f1", "aa")]);
        let later = with(&[("f1", "aa"), ("f2", "bb")]);
        assert_eq!(contents.differences(&later), ["file f2 is there, must be absent"]);
    }

    #[test]
    fn cut_write_allows_both_outcomes_once() {
        for (outcome, other) in [("aa", "bb"), ("bb", "aa")] {
            let mut contents = acknowledged(&[("f1", "aa")]);
            contents.write_begins("f1", "bb");
            assert!(!contents.differences(&with(&[("f1", "cc")])).is_empty(), "a torn file is a loss");
            assert!(!contents.differences(&with(&[])).is_empty(), "neither outcome removes it");
            let seen = with(&[("f1", outcome)]);
            assert!(contents.differences(&seen).is_empty());
            contents.learn(&seen);
            assert!(!contents.differences(&with(&[("f1", other)])).is_empty(), "it was learnt");
        }
    }

    #[test]
    fn lost_memory_is_noticed() {
        let memory = Memory::Counts { token: "t".to_owned(), at_least: 5 };
        let contents = Contents { memory, ..Contents::default() };
        let seen = |token: Option<&str>, count, alive| Seen {
            token: token.map(str::to_owned),
            count: Some(count),
            alive,
            ..Seen::default()
        };
        assert!(contents.differences(&seen(Some("t"), 5, true)).is_empty());
        assert!(!contents.differences(&seen(Some("t"), 4, true)).is_empty(), "it went back");
        assert!(!contents.differences(&seen(Some("t"), 9, false)).is_empty(), "it is dead");
        assert!(!contents.differences(&seen(Some("u"), 9, true)).is_empty(), "it is another's");
        assert!(!contents.differences(&seen(None, 9, true)).is_empty(), "it is gone");
        let mut after = contents;
        after.lose_memory();
        assert!(!after.differences(&seen(Some("t"), 9, true)).is_empty(), "it must not outlive its VM");
    }
}
