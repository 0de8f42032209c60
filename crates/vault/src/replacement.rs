//! Text replacement in a note, with a limit on the result.

use regex::{Regex, RegexBuilder};

use crate::error::VaultError;
use crate::path::NotePath;
use crate::pattern::{MAX_COMPILED, bad_pattern};
use crate::root::MAX_NOTE;

/// The most bytes of text to be replaced.
pub const MAX_OLD: usize = 64 * 1024;

#[derive(Clone, Debug)]
pub struct Replacement {
    old: Old,
    new: String,
}

#[derive(Clone, Debug)]
enum Old {
    Plain(String),
    Expression(Regex),
}

impl Replacement {
    /// Replaces plain text. `old` must not be empty.
    pub fn plain(old: &str, new: &str) -> Self {
        Self { old: Old::Plain(old.to_owned()), new: new.to_owned() }
    }

    /// Replaces a regular expression. `$1` and `${name}` in `new` stand for its groups.
    pub fn expression(old: &str, new: &str) -> Result<Self, VaultError> {
        let built = RegexBuilder::new(old)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_COMPILED)
            .build()
            .map_err(|error| bad_pattern(&error))?;
        Ok(Self { old: Old::Expression(built), new: new.to_owned() })
    }

    /// The text with all matches replaced, and their number.
    pub(crate) fn apply(&self, text: &str, path: &NotePath) -> Result<(String, usize), VaultError> {
        let check = |size: usize| match size as u64 > MAX_NOTE {
            true => Err(VaultError::TooLarge { path: path.to_string(), size: size as u64, max: MAX_NOTE }),
            false => Ok(()),
        };
        match &self.old {
            Old::Plain(old) => {
                let count = text.matches(old.as_str()).count();
                check((text.len() - count * old.len()).saturating_add(count.saturating_mul(self.new.len())))?;
                Ok((text.replace(old.as_str(), &self.new), count))
            }
            Old::Expression(regex) => {
                let (mut out, mut from, mut count) = (String::new(), 0, 0);
                let groups = self.new.matches('$').count();
                for found in regex.captures_iter(text) {
                    let longest = found.iter().flatten().map(|group| group.len()).max().unwrap_or(0);
                    let Some(whole) = found.get(0) else { continue };
                    out.push_str(&text[from..whole.start()]);
                    // An upper bound: every reference may stand for the longest group.
                    let most = self.new.len().saturating_add(groups.saturating_mul(longest));
                    check(out.len().saturating_add(most))?;
                    found.expand(&self.new, &mut out);
                    from = whole.end();
                    count += 1;
                }
                out.push_str(&text[from..]);
                check(out.len())?;
                Ok((out, count))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(replacement: &Replacement, text: &str) -> Result<(String, usize), VaultError> {
        replacement.apply(text, &NotePath::parse("n.md").unwrap())
    }

    #[test]
    fn all_occurrences_and_groups_are_replaced() {
        assert_eq!(apply(&Replacement::plain("a", "bb"), "xaya").unwrap(), ("xbbybb".to_owned(), 2));
        assert_eq!(apply(&Replacement::plain("$1", ""), "a$1b").unwrap(), ("ab".to_owned(), 1));
        assert_eq!(apply(&Replacement::plain("q", "r"), "abc").unwrap(), ("abc".to_owned(), 0));
        let dates = Replacement::expression(r"(?m)^(\d+)-(?<m>\d+)$", "${m}/$1").unwrap();
        assert_eq!(apply(&dates, "2026-11\nx 1-2\n1-2\n").unwrap(), ("11/2026\nx 1-2\n2/1\n".to_owned(), 2));
        let empty = Replacement::expression("x*", "-").unwrap();
        assert_eq!(apply(&empty, "äx").unwrap(), ("-ä-".to_owned(), 2));
    }

    #[test]
    fn oversized_replacement_is_refused_early() {
        let text = "a".repeat(1 << 20);
        for replacement in [
            Replacement::plain("a", &"b".repeat(1 << 20)),
            Replacement::expression("(a+)", &"$1".repeat(30_000)).unwrap(),
            Replacement::expression("a", &"b".repeat(1 << 10)).unwrap(),
        ] {
            assert_eq!(apply(&replacement, &text).unwrap_err().code(), "too_large");
        }
    }

    #[test]
    fn invalid_or_huge_expression_is_refused() {
        for bad in ["(a", "[", "(?<x>a)(?<x>b)", "((a{1000}){1000}){1000}", r"\w{5000}"] {
            assert_eq!(Replacement::expression(bad, "").unwrap_err().code(), "bad_pattern", "{bad}");
        }
    }
}
