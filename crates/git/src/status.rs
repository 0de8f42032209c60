//! Parser for `git status --porcelain=v2 --branch -z`.
//!
//! Entries end with a NUL byte, so paths may hold anything else. An entry of a rename is followed by its old path, which
//! ends with a NUL byte as well.

use thiserror::Error;

/// The status of a working tree, as the tools report it. Paths are bytes; invalid UTF-8 in them is replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The branch; `(detached)` if none is checked out.
    pub branch: String,
    pub ahead: u64,
    pub behind: u64,
    /// Files whose index entry differs from the last commit. A file can be here and in `modified`.
    pub staged: Vec<String>,
    /// Files that differ from the index.
    pub modified: Vec<String>,
    pub untracked: Vec<String>,
    pub conflicted: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot parse git's status at {entry:?}")]
pub struct StatusError {
    entry: String,
}

impl StatusError {
    fn at(entry: &[u8]) -> Self {
        Self { entry: String::from_utf8_lossy(&entry[..entry.len().min(80)]).into_owned() }
    }
}

impl Status {
    /// Parses the output. If it was truncated, an incomplete last entry is left out.
    pub fn parse(output: &[u8]) -> Result<Self, StatusError> {
        let whole = output.iter().rposition(|byte| *byte == 0).map_or(0, |last| last + 1);
        let mut entries = output[..whole].split(|byte| *byte == 0);
        let mut status = Self::default();
        while let Some(entry) = entries.next() {
            status.take(entry)?;
            if entry.starts_with(b"2 ") {
                // The old path of a rename.
                entries.next();
            }
        }
        Ok(status)
    }

    pub fn is_dirty(&self) -> bool {
        [&self.staged, &self.modified, &self.untracked, &self.conflicted].iter().any(|list| !list.is_empty())
    }

    fn take(&mut self, entry: &[u8]) -> Result<(), StatusError> {
        let wrong = || StatusError::at(entry);
        match entry.split_first() {
            None => {}
            Some((b'#', header)) => self.header(header),
            Some((b'?', rest)) => self.untracked.push(path(rest, 2).ok_or_else(wrong)?),
            // Ignored files are only listed on request.
            Some((b'!', _)) => {}
            Some((b'u', rest)) => self.conflicted.push(path(rest, 11).ok_or_else(wrong)?),
            Some((kind @ (b'1' | b'2'), rest)) => {
                let fields = if *kind == b'1' { 9 } else { 10 };
                let changed = path(rest, fields).ok_or_else(wrong)?;
                let (index, tree) = match rest {
                    [b' ', index, tree, b' ', ..] => (*index, *tree),
                    _ => return Err(wrong()),
                };
                if index != b'.' {
                    self.staged.push(changed.clone());
                }
                if tree != b'.' {
                    self.modified.push(changed);
                }
            }
            Some(_) => return Err(wrong()),
        }
        Ok(())
    }

    /// Reads a header. Unknown headers are ignored.
    fn header(&mut self, header: &[u8]) {
        let text = String::from_utf8_lossy(header);
        if let Some(name) = text.strip_prefix(" branch.head ") {
            self.branch = name.to_owned();
        }
        if let Some((ahead, behind)) = text.strip_prefix(" branch.ab +").and_then(|ab| ab.split_once(" -")) {
            self.ahead = ahead.parse().unwrap_or_default();
            self.behind = behind.parse().unwrap_or_default();
        }
    }
}

/// The last of `fields` fields separated by blanks, after the first was removed. It may contain blanks itself.
fn path(rest: &[u8], fields: usize) -> Option<String> {
    let last = rest.splitn(fields, |byte| *byte == b' ').nth(fields - 1)?;
    (!last.is_empty()).then(|| String::from_utf8_lossy(last).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MODES: &str = "N... 100644 100644 100644 1111111111111111111111111111111111111111 \
                         2222222222222222222222222222222222222222";

    fn ordinary(xy: &str, path: &str) -> String {
        format!("1 {xy} {MODES} {path}\0")
    }

    #[test]
    fn every_status_entry_kind_is_parsed() {
        let mut output =
            "# branch.oid abc\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -3\0\
                          # stash 1\0"
                .to_owned();
        output += &ordinary("M.", "staged file");
        output += &ordinary(".M", "it's \"quoted\"\nand more");
        output += &ordinary("MM", "both");
        output += &ordinary(".D", "gone");
        output += &format!("2 R. {MODES} R100 new name\0old name\0");
        output += "u UU N... 100644 100644 100644 100644 1 2 3 in conflict\0? un tracked/\0! ignored\0";
        let status = Status::parse(output.as_bytes()).unwrap();
        let expected = Status {
            branch: "main".to_owned(),
            ahead: 2,
            behind: 3,
            staged: ["staged file", "both", "new name"].map(str::to_owned).to_vec(),
            modified: ["it's \"quoted\"\nand more", "both", "gone"].map(str::to_owned).to_vec(),
            untracked: vec!["un tracked/".to_owned()],
            conflicted: vec!["in conflict".to_owned()],
        };
        assert_eq!(status, expected);
        assert!(status.is_dirty());
    }

    #[test]
    fn clean_tree_and_unborn_branch_are_parsed() {
        let status = Status::parse(b"# branch.oid (initial)\0# branch.head main\0").unwrap();
        assert_eq!((status.branch.as_str(), status.is_dirty(), status.ahead), ("main", false, 0));
        assert_eq!(Status::parse(b"").unwrap(), Status::default());
    }

    #[test]
    fn cut_entries_are_dropped_and_nonsense_refused() {
        let output = format!("{}? half", ordinary("M.", "whole"));
        let status = Status::parse(output.as_bytes()).unwrap();
        assert_eq!((status.staged.len(), status.untracked.len()), (1, 0));
        for nonsense in ["x y\0", "1 M.\0", "?\0", "1 MM N... 1 2 3 4 5 \0", "u\0"] {
            assert!(Status::parse(nonsense.as_bytes()).is_err(), "{nonsense:?}");
        }
    }

    proptest! {
        #[test]
        fn any_path_survives(paths in prop::collection::vec("[^\0]{1,30}", 0..8)) {
            let output: String = paths.iter().map(|path| format!("? {path}\0{}", ordinary("M.", path))).collect();
            let status = Status::parse(output.as_bytes()).unwrap();
            prop_assert_eq!(&status.untracked, &paths);
            prop_assert_eq!(&status.staged, &paths);
        }

        #[test]
        fn any_bytes_are_read_or_refused(output in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Status::parse(&output);
        }

        #[test]
        fn any_words_are_read_or_refused(output in "([12u?!# .MADRC0-9a-f]|\0){0,120}") {
            let _ = Status::parse(output.as_bytes());
        }
    }
}
