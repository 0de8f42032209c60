//! The failure of a command: one sentence, an optional hint, an exit code.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use agentiso_sys::files;

use crate::output;

/// The command could not do what was asked.
pub(crate) const FAILED: u8 = 1;
/// The command line or the configuration is wrong. Clap uses the same number.
pub(crate) const USAGE: u8 = 2;
/// `exec`: the command timed out. The program `timeout` uses the same number.
pub(crate) const TIMED_OUT: u8 = 124;
/// `exec`: agentiso could not run the command. Container runtimes use the same number.
pub(crate) const NOT_RUN: u8 = 125;
/// Interrupted with ctrl-C. Shells use the same number.
pub(crate) const INTERRUPTED: u8 = 130;

#[derive(Debug)]
pub(crate) struct Failure {
    sentence: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), hint: None, code: FAILED }
    }

    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), hint: None, code: USAGE }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    pub(crate) fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.code
    }

    /// Prints the failure and returns the program's exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let (red, plain) = if output::stderr_has_colour() { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
        eprintln!("{red}agentiso:{plain} {}", self.sentence);
        if let Some(hint) = &self.hint {
            eprintln!("hint: {hint}");
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Every error becomes one sentence: its own text and those of its causes, without repetitions.
impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let hint = is_out_of_space(&error)
            .then(|| "the host's disk is full: free some space and run it again".to_owned());
        Self::new(chain(&error)).maybe_hint(hint)
    }
}

fn is_out_of_space(error: &dyn Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.any(|cause| cause.downcast_ref().is_some_and(files::is_out_of_space))
}

pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the file cannot be read")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn failure_sentence_includes_causes() {
        let failure = Failure::from(Outer(io::Error::other("disk on fire")));
        assert_eq!(failure.to_string(), "the file cannot be read: disk on fire");
        assert_eq!(failure.hint, None);
    }

    #[test]
    fn full_disk_gets_a_hint() {
        let failure = Failure::from(Outer(io::ErrorKind::StorageFull.into()));
        assert!(failure.hint.is_some_and(|hint| hint.contains("free some space")));
    }
}
