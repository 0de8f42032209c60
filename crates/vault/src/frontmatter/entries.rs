//! Finds the lines of a key in a block of YAML.
//!
//! This works on lines and knows little of YAML: a key is at the beginning of a line, and its value is indented or a
//! list. The caller parses the result to verify it.

use std::ops::Range;

/// The lines of a key and its value, without the comments and blank lines that follow, which belong to the next key.
pub(super) fn find(yaml: &str, key: &str) -> Option<Range<usize>> {
    let mut found: Option<Range<usize>> = None;
    let mut at = 0;
    for line in yaml.split_inclusive('\n') {
        let end = at + line.len();
        match (kind(line), &mut found) {
            (Kind::Key(name), None) if name == key => found = Some(at..end),
            (Kind::Key(_), Some(_)) => break,
            (Kind::Value, Some(range)) => range.end = end,
            (Kind::Key(_) | Kind::Value | Kind::Between, _) => {}
        }
        at = end;
    }
    found
}

enum Kind<'a> {
    Key(&'a str),
    /// A line of the value of the key before it.
    Value,
    /// A comment at the margin or a blank line.
    Between,
}

fn kind(line: &str) -> Kind<'_> {
    let line = line.trim_end();
    match line.chars().next() {
        None | Some('#') => Kind::Between,
        Some(' ' | '\t' | '-' | ']' | '}') => Kind::Value,
        Some(quote @ ('"' | '\'')) => match line[1..].split_once(quote) {
            Some((name, rest)) if rest.trim_start().starts_with(':') => Kind::Key(name),
            Some(_) | None => Kind::Value,
        },
        Some(_) => match line.split_once(": ").or_else(|| line.split_once(":\t")) {
            Some((name, _)) => Kind::Key(name.trim_end()),
            None => line.strip_suffix(':').map_or(Kind::Value, |name| Kind::Key(name.trim_end())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_range_includes_its_nested_lines() {
        let yaml = "a: 1\ntags:\n- x\n  - y\n# about b\n\nb: |\n  text\n\n  more\n'c d': 2\n";
        let of = |key: &str| find(yaml, key).map(|range| &yaml[range]);
        assert_eq!(of("a"), Some("a: 1\n"));
        assert_eq!(of("tags"), Some("tags:\n- x\n  - y\n"));
        assert_eq!(of("b"), Some("b: |\n  text\n\n  more\n"));
        assert_eq!(of("c d"), Some("'c d': 2\n"));
        assert_eq!(of("x"), None);
    }
}
