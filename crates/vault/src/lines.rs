//! Finds the matching lines of a text and their context.

use std::ops::Range;

use memchr::{memchr, memchr_iter, memrchr};

use crate::pattern::Pattern;

/// A matching line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Counted from 0.
    pub(crate) number: usize,
    /// The bytes of the line without its line ending.
    pub(crate) range: Range<usize>,
    /// The offset of the match in the line.
    pub(crate) at: usize,
}

pub(crate) fn matching(pattern: &Pattern, text: &[u8]) -> Vec<Line> {
    let mut found = Vec::new();
    let (mut from, mut number) = (0, 0);
    while from < text.len() {
        // The next line that can match. Lines before it are only counted.
        let Some(candidate) = pattern.candidate(&text[from..]) else { break };
        let start = memrchr(b'\n', &text[..from + candidate]).map_or(0, |at| at + 1).max(from);
        number += memchr_iter(b'\n', &text[from..start]).count();
        let end = memchr(b'\n', &text[start..]).map_or(text.len(), |at| start + at);
        let range = start..without_return(text, start, end);
        if let Some(at) = pattern.find(&text[range.clone()]) {
            found.push(Line { number, range, at });
        }
        number += 1;
        from = end + 1;
    }
    found
}

/// A line with up to `count` lines before and after it.
pub(crate) fn around<'a>(text: &'a [u8], line: &Line, count: usize) -> Vec<&'a [u8]> {
    let (mut begin, mut end) = (line.range.start, line.range.end);
    for _ in 0..count.min(line.number) {
        begin = memrchr(b'\n', &text[..begin - 1]).map_or(0, |at| at + 1);
    }
    for _ in 0..=count {
        end = memchr(b'\n', &text[end..]).map_or(text.len(), |at| end + at + 1);
    }
    let lines = text[begin..end].strip_suffix(b"\n").unwrap_or(&text[begin..end]);
    lines.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect()
}

fn without_return(text: &[u8], start: usize, end: usize) -> usize {
    if end > start && text[end - 1] == b'\r' { end - 1 } else { end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same by a simple scan.
    fn plainly(pattern: &Pattern, text: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let lines = text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).enumerate();
        let matching = lines.filter(|(_, line)| !text.is_empty() && pattern.find(line).is_some());
        matching.map(|(number, line)| (number, line.to_vec())).collect()
    }

    proptest! {
        #[test]
        fn matching_lines_equal_a_linear_scan(text in "[ab\r\n]{0,40}", query in "[ab\r\n]{1,3}") {
            let text = text.as_bytes();
            for pattern in [Pattern::plain(&query), Pattern::expression("a+b|^$|b$").unwrap()] {
                let found: Vec<(usize, Vec<u8>)> = matching(&pattern, text)
                    .into_iter()
                    .map(|line| (line.number, text[line.range].to_vec()))
                    .collect();
                prop_assert_eq!(found, plainly(&pattern, text));
            }
        }

        #[test]
        fn context_lines_come_from_the_text(text in "[a\r\n]{1,30}", count in 0usize..4) {
            let text = text.as_bytes();
            let all: Vec<&[u8]> = text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n')
                .map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
            for line in matching(&Pattern::expression("").unwrap(), text) {
                let expected = &all[line.number.saturating_sub(count)..(line.number + count + 1).min(all.len())];
                prop_assert_eq!(around(text, &line, count), expected, "line {}", line.number);
            }
        }
    }
}
