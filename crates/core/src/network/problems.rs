//! All problems of a policy, reported at once, so that its author can correct them together.

use std::fmt;

use thiserror::Error;

/// One problem and its place, such as `allow_domains[2]`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}: {message}")]
pub struct PolicyProblem {
    pub path: String,
    pub message: String,
}

/// All problems of a policy; at least one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct PolicyProblems(Vec<PolicyProblem>);

impl PolicyProblems {
    pub fn iter(&self) -> impl Iterator<Item = &PolicyProblem> {
        self.0.iter()
    }
}

impl fmt::Display for PolicyProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

/// Problems found so far.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<PolicyProblem>);

impl Findings {
    pub(super) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(PolicyProblem { path: path.into(), message: message.into() });
    }

    pub(super) fn into_result(self) -> Result<(), PolicyProblems> {
        if self.0.is_empty() { Ok(()) } else { Err(PolicyProblems(self.0)) }
    }
}
