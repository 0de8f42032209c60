//! Errors of a step of a merge.

use std::fmt;

use thiserror::Error;

use crate::script::Ran;
use crate::trouble::Trouble;

/// The most bytes of git's output in an error, taken from its end.
const MAX_WORDS: usize = 2000;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MergeError<E: fmt::Display> {
    #[error("{words}")]
    Refused { code: String, words: String },
    #[error("git failed: {words}")]
    Git { trouble: Trouble, words: String },
    #[error("{0}")]
    Guest(E),
    #[error("its output lacks {0}")]
    Answer(&'static str),
    #[error("the call was cancelled")]
    Stopped,
}

impl<E: fmt::Display> MergeError<E> {
    /// The result of a script, if it succeeded.
    pub(super) fn check(ran: Result<Ran, E>) -> Result<Ran, Self> {
        let ran = ran.map_err(Self::Guest)?;
        if ran.succeeded() {
            return Ok(ran);
        }
        match ran.refusal() {
            Some((code, words)) => Err(Self::Refused { code, words }),
            None => Err(Self::Git { trouble: Trouble::of(&ran), words: ran.words(MAX_WORDS) }),
        }
    }
}
