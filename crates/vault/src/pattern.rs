//! Search patterns: plain text, or a regular expression with linear running time.

use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};

use crate::error::VaultError;

/// The most characters of a query or an expression.
pub const MAX_QUERY: usize = 1024;

/// The size limit of a compiled expression. Nested counted repetitions could take any amount of memory.
pub(crate) const MAX_COMPILED: usize = 2 * 1024 * 1024;

#[derive(Clone, Debug)]
pub enum Pattern {
    Plain(Box<Finder<'static>>),
    Expression(Regex),
}

impl Pattern {
    pub fn plain(text: &str) -> Self {
        Self::Plain(Box::new(Finder::new(text.as_bytes()).into_owned()))
    }

    pub fn expression(text: &str) -> Result<Self, VaultError> {
        let built = RegexBuilder::new(text).size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED).build();
        built.map(Self::Expression).map_err(|error| bad_pattern(&error))
    }

    /// The offset of the first match in a line.
    pub(crate) fn find(&self, line: &[u8]) -> Option<usize> {
        match self {
            Self::Plain(finder) => finder.find(line),
            Self::Expression(regex) => regex.find(line).map(|found| found.start()),
        }
    }

    /// An offset in the first line of a text that can match, if any. No line before it matches.
    pub(crate) fn candidate(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Plain(finder) => finder.find(text),
            // An expression applies to single lines; on a whole text it could match something else.
            Self::Expression(_) => Some(0),
        }
    }
}

pub(crate) fn bad_pattern(error: &regex::Error) -> VaultError {
    let problem = if let regex::Error::CompiledTooBig(_) = error {
        "it would take too much memory".to_owned()
    } else {
        // The message shows the expression on several lines; the last line has the reason.
        error.to_string().lines().last().unwrap_or_default().trim().chars().take(300).collect()
    };
    VaultError::Pattern { problem }
}
