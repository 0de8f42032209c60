//! Tags of a note: the list `tags` of its frontmatter, and `#tag` in its text.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::frontmatter;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid tag {tag:?}: it must start with a letter, followed by letters, digits, '_', '/' or '-'")]
pub struct TagError {
    tag: String,
}

/// A tag without its `#`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(String);

impl Tag {
    pub fn parse(text: &str) -> Result<Self, TagError> {
        let tag = text.strip_prefix('#').unwrap_or(text);
        if !tag.is_empty() && length(tag) == tag.len() && tag.len() <= MAX_TAG_LEN {
            return Ok(Self(tag.to_owned()));
        }
        Err(TagError { tag: text.chars().take(60).collect() })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The longest tag. Longer words are not meant as tags.
const MAX_TAG_LEN: usize = 200;

/// The length in bytes of the tag at the beginning of a text; 0 if there is none.
fn length(text: &str) -> usize {
    let mut chars = text.char_indices();
    if !chars.next().is_some_and(|(_, c)| c.is_alphabetic()) {
        return 0;
    }
    let more = |c: char| c.is_alphanumeric() || matches!(c, '_' | '/' | '-');
    chars.find(|(_, c)| !more(*c)).map_or(text.len(), |(at, _)| at)
}

/// All tags of a note without duplicates, those of its frontmatter first. Unreadable frontmatter has no tags.
pub(crate) fn all(text: &str) -> Vec<String> {
    let mut tags = match frontmatter::read(text) {
        Ok(Some(map)) => of_map(&map),
        Ok(None) | Err(_) => Vec::new(),
    };
    let body = frontmatter::split(text).map_or(text, |parts| parts.body);
    inline(body, |tag| {
        if !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
    });
    tags
}

/// The tags of frontmatter: a list, or one text separated by commas or blanks.
pub(crate) fn of_map(map: &Map<String, Value>) -> Vec<String> {
    let words: Vec<String> = match map.get("tags") {
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(|item| match item {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
            })
            .collect(),
        Some(Value::String(text)) => {
            text.split(|c: char| c == ',' || c.is_whitespace()).map(str::to_owned).collect()
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    };
    let mut tags = Vec::new();
    for word in words {
        let tag = word.trim().trim_start_matches('#').to_owned();
        if !tag.is_empty() && !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags
}

fn inline(body: &str, mut found: impl FnMut(&str)) {
    let mut fence: Option<Fence> = None;
    for line in body.lines() {
        match (Fence::of(line), &fence) {
            (Some(opened), None) => fence = Some(opened),
            (Some(closed), Some(open)) if closed.closes(open, line) => fence = None,
            (_, Some(_)) => {}
            (None, None) => in_line(line, &mut found),
        }
    }
}

fn in_line(line: &str, found: &mut impl FnMut(&str)) {
    for (at, _) in line.match_indices('#') {
        let stands_alone = line[..at].chars().next_back().is_none_or(char::is_whitespace);
        let rest = &line[at + 1..];
        let end = length(rest);
        if stands_alone && (1..=MAX_TAG_LEN).contains(&end) {
            found(&rest[..end]);
        }
    }
}

/// A code fence: three or more of one mark.
#[derive(Clone, Copy)]
struct Fence {
    mark: char,
    count: usize,
}

impl Fence {
    fn of(line: &str) -> Option<Self> {
        let line = line.trim_start();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let count = line.chars().take_while(|c| *c == mark).count();
        (count >= 3).then_some(Self { mark, count })
    }

    fn closes(self, open: &Self, line: &str) -> bool {
        self.mark == open.mark && self.count >= open.count && line.trim().chars().all(|c| c == self.mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_come_from_frontmatter_and_text_not_code() {
        let text = "---\ntags: [a, '#b', 7, a]\n---\n# Title #c\n#d/e-f_1, (#no) x#no ##no #1no #ä\n```sh\n#no\n~~~\n```\n#g #a\n~~~~\n#no\n~~~\n#no\n~~~~\n#h";
        assert_eq!(all(text), ["a", "b", "7", "c", "d/e-f_1", "ä", "g", "h"]);
        assert_eq!(all("---\ntags: 'x, #y z'\n---\n"), ["x", "y", "z"]);
        assert_eq!(all("---\ntags: [\n---\n#t\n"), ["t"], "broken frontmatter has no tags");
        assert_eq!(all("#crlf\r\n#two\r\n"), ["crlf", "two"]);
    }

    #[test]
    fn tag_must_begin_with_a_letter() {
        assert_eq!(Tag::parse("#a/b").unwrap().as_str(), "a/b");
        for bad in ["", "#", "1a", "a b", "a\n", "-a", "a#", &"x".repeat(201)] {
            assert!(Tag::parse(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_found_tag_can_be_parsed(text in "(#|a|1|_|/|-| |\n|ä|`|~|:){0,40}") {
            for tag in all(&text) {
                prop_assert!(Tag::parse(&tag).is_ok(), "{}", tag);
            }
        }
    }
}
