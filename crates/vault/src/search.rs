//! Search for matching lines with their context.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::error::VaultError;
use crate::lines::{self, Line};
use crate::notes::Vault;
use crate::path::FolderPath;
use crate::pattern::Pattern;
use crate::root::read_whole;
use crate::tags::{self, Tag};
use crate::walk::{Found, Note, walk};

/// The most hits of a search.
pub const MAX_HITS: usize = 1000;

/// Lines of context before and after a hit.
const AROUND: usize = 2;

/// The bytes of a long line that are shown, and those of them before the match.
const MAX_LINE: usize = 400;
const BEFORE_MATCH: usize = 100;

/// The number of bytes that decide whether a file is binary.
const BINARY_PROBE: usize = 8 * 1024;

#[derive(Clone, Debug)]
pub struct Query {
    pub pattern: Pattern,
    /// A folder, or a prefix of paths.
    pub prefix: FolderPath,
    /// Only notes with this tag.
    pub tag: Option<Tag>,
    /// At most [`MAX_HITS`].
    pub max_hits: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    pub path: String,
    /// Counted from 1.
    pub line_number: usize,
    pub line: String,
    /// The line with its context lines.
    pub context: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Sorted by path and line.
    pub hits: Vec<Hit>,
    /// The number of matching lines, shown or not.
    pub total: u64,
    /// Files that were left out because they are larger than a note or cannot be read.
    pub skipped: u64,
    /// Whether all notes were searched before the time ran out.
    pub complete: bool,
}

impl Vault {
    pub fn search(&self, query: &Query) -> Result<Hits, VaultError> {
        self.settings.check_folder(&query.prefix)?;
        let (start, begin) = self.scope(&query.prefix)?;
        let first = First::new(query.max_hits.min(MAX_HITS));
        let (total, skipped) = (AtomicU64::new(0), AtomicU64::new(0));
        let visit = |found: Found<'_>| {
            let Found::Note(note) = found else { return };
            let path = note.path();
            if !path.starts_with(&begin) {
                return;
            }
            match matches(&note, query, || first.wants(&path)) {
                Some(in_note) if in_note.count > 0 => {
                    total.fetch_add(in_note.count, Ordering::Relaxed);
                    first.offer(path, in_note.shown);
                }
                Some(_) => {}
                None => {
                    skipped.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let complete = match walk(&self.root()?, &self.settings, &start, true, visit) {
            // No path has this prefix.
            Err(VaultError::NotFound { .. } | VaultError::NotFolder { .. }) if !start.is_root() => true,
            walked => walked?,
        };
        Ok(Hits {
            hits: first.into_hits(),
            total: total.into_inner(),
            skipped: skipped.into_inner(),
            complete,
        })
    }

    /// The folder in which a search starts, and the required prefix of paths. An existing folder is taken as a folder,
    /// anything else as a prefix.
    fn scope(&self, prefix: &FolderPath) -> Result<(FolderPath, String), VaultError> {
        if self.has_folder(prefix)? {
            return Ok((prefix.clone(), String::new()));
        }
        let parent = prefix.as_str().rsplit_once('/').map_or("", |(parent, _)| parent);
        let start = FolderPath::parse(parent)
            .map_err(|problem| VaultError::Path { path: parent.to_owned(), problem })?;
        Ok((start, prefix.as_str().to_owned()))
    }
}

struct InNote {
    shown: Vec<Hit>,
    count: u64,
}

/// Searches one note. `None` if it cannot be read. Hits are built only if `wanted` returns true.
fn matches(note: &Note<'_>, query: &Query, wanted: impl FnOnce() -> bool) -> Option<InNote> {
    let none = InNote { shown: Vec::new(), count: 0 };
    let bytes = read_whole(&note.open()?, note.path()).ok()?;
    let is_binary = bytes[..bytes.len().min(BINARY_PROBE)].contains(&0);
    if is_binary {
        return Some(none);
    }
    let matching = lines::matching(&query.pattern, &bytes);
    if matching.is_empty() {
        return Some(none);
    }
    if let Some(tag) = &query.tag
        && !tags::all(&String::from_utf8_lossy(&bytes)).iter().any(|found| found == tag.as_str())
    {
        return Some(none);
    }
    let shown = if wanted() { matching.len().min(query.max_hits) } else { 0 };
    let path = note.path();
    let hit = |line: &Line| {
        let context: Vec<String> =
            lines::around(&bytes, line, AROUND).into_iter().map(|line| cut(line, 0)).collect();
        Hit {
            path: path.clone(),
            line_number: line.number + 1,
            line: cut(&bytes[line.range.clone()], line.at),
            context: context.join("\n"),
        }
    };
    Some(InNote { shown: matching[..shown].iter().map(hit).collect(), count: matching.len() as u64 })
}

/// The part of a long line around a match, as text.
fn cut(line: &[u8], at: usize) -> String {
    let text = String::from_utf8_lossy(line);
    if text.len() <= MAX_LINE {
        return text.into_owned();
    }
    let begin = text.floor_char_boundary(at.saturating_sub(BEFORE_MATCH));
    let end = text.floor_char_boundary((begin + MAX_LINE).min(text.len()));
    let (before, after) = (if begin > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" });
    format!("{before}{}{after}", &text[begin..end])
}

/// Collects the first hits by path, in whatever order they are found.
struct First {
    limit: usize,
    kept: Mutex<BTreeMap<String, Vec<Hit>>>,
}

impl First {
    fn new(limit: usize) -> Self {
        Self { limit, kept: Mutex::default() }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<Hit>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether hits of this note could be among the first.
    fn wants(&self, path: &str) -> bool {
        let kept = self.kept();
        let count: usize = kept.values().map(Vec::len).sum();
        count < self.limit || kept.last_key_value().is_some_and(|(last, _)| path < last.as_str())
    }

    fn offer(&self, path: String, hits: Vec<Hit>) {
        if hits.is_empty() {
            return;
        }
        let mut kept = self.kept();
        kept.insert(path, hits);
        let mut count: usize = kept.values().map(Vec::len).sum();
        // The last note is dropped when those before it have enough hits.
        while let Some(last) = kept.last_entry()
            && count - last.get().len() >= self.limit
        {
            count -= last.remove().len();
        }
    }

    fn into_hits(self) -> Vec<Hit> {
        let kept = self.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        kept.into_values().flatten().take(self.limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_cut_around_the_match() {
        let line = format!("{}match{}", "ä".repeat(500), "€".repeat(500));
        let shown = cut(line.as_bytes(), line.find("match").unwrap());
        assert!(shown.starts_with('…') && shown.ends_with('…') && shown.contains("match"), "{shown}");
        assert!(shown.len() < MAX_LINE + 10);
        assert_eq!(cut(b"short \xff", 0), "short \u{fffd}");
    }

    #[test]
    fn first_hits_are_kept_in_path_order() {
        let hit = |path: &str| Hit {
            path: path.to_owned(),
            line_number: 1,
            line: String::new(),
            context: String::new(),
        };
        let first = First::new(3);
        for path in ["e", "b", "d", "a", "c"] {
            if first.wants(path) {
                first.offer(path.to_owned(), vec![hit(path), hit(path)]);
            }
        }
        assert!(!first.wants("c"));
        let paths: Vec<String> = first.into_hits().into_iter().map(|hit| hit.path).collect();
        assert_eq!(paths, ["a", "a", "b"]);
    }
}
