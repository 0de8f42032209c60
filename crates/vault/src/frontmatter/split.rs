//! Splits a note into frontmatter and body.

/// The parts of a note's text. Concatenated they are the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The line `---`, with its end, and a byte order mark if there is one.
    pub opening: &'a str,
    pub yaml: &'a str,
    /// The second line `---`, with its end if it has one.
    pub closing: &'a str,
    pub body: &'a str,
}

impl<'a> Parts<'a> {
    /// The line ending of the note.
    pub fn line_end(&self) -> &'static str {
        if self.opening.ends_with("\r\n") { "\r\n" } else { "\n" }
    }
}

/// Splits a text. `None`: there is no frontmatter, or it has no end.
pub fn split(text: &str) -> Option<Parts<'_>> {
    let mark = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut lines = text[mark..].split_inclusive('\n');
    let opening = mark + lines.next().filter(|line| line.ends_with('\n') && is_fence(line))?.len();
    let mut at = opening;
    for line in lines {
        if is_fence(line) {
            let end = at + line.len();
            return Some(Parts {
                opening: &text[..opening],
                yaml: &text[opening..at],
                closing: &text[at..end],
                body: &text[end..],
            });
        }
        at += line.len();
    }
    None
}

fn is_fence(line: &str) -> bool {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line) == "---"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frontmatter_ends_at_the_next_fence() {
        let parts = split("---\na: 1\n---\nbody\n---\n").unwrap();
        assert_eq!((parts.yaml, parts.body), ("a: 1\n", "body\n---\n"));
        let parts = split("---\r\na: 1\r\n---\r\nbody").unwrap();
        assert_eq!((parts.yaml, parts.body, parts.line_end()), ("a: 1\r\n", "body", "\r\n"));
        assert_eq!(split("---\n---").map(|parts| (parts.yaml, parts.closing)), Some(("", "---")));
        assert!(split("\u{feff}---\na: 1\n---\n").is_some());
        for none in ["", "---", "---\n", "---\na: 1\n", "a\n---\nb\n---\n", " ---\n---\n", "----\n---\n"] {
            assert_eq!(split(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn split_parts_rebuild_the_text(text in "\u{feff}?(---|-|a: 1|\r|\n|ä| ){0,12}") {
            if let Some(Parts { opening, yaml, closing, body }) = split(&text) {
                prop_assert_eq!(format!("{opening}{yaml}{closing}{body}"), text);
            }
        }
    }
}
