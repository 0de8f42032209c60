//! The results of checks.

use std::error::Error;
use std::time::Duration;

use super::check::Check;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed {
        reason: String,
    },
    /// The check could not be run.
    Skipped {
        reason: String,
    },
}

impl Verdict {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed => None,
            Self::Failed { reason } | Self::Skipped { reason } => Some(reason),
        }
    }

    /// The worse of two verdicts: a failure, otherwise a skipped check.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (failed @ Self::Failed { .. }, _) | (_, failed @ Self::Failed { .. }) => failed,
            (skipped @ Self::Skipped { .. }, _) | (_, skipped @ Self::Skipped { .. }) => skipped,
            (Self::Passed, Self::Passed) => Self::Passed,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    pub check: Check,
    pub verdict: Verdict,
    pub time: Duration,
}

/// Whether no check failed.
pub fn is_sound(results: &[CheckResult]) -> bool {
    results.iter().all(|result| !matches!(result.verdict, Verdict::Failed { .. }))
}

/// Combines the checks of two VMs into one list: a check that failed in either has failed.
pub(super) fn merge(first: Vec<CheckResult>, second: Vec<CheckResult>) -> Vec<CheckResult> {
    let mut merged = first;
    for result in second {
        match merged.iter_mut().find(|other| other.check == result.check) {
            Some(other) => {
                other.verdict = other.verdict.clone().and(result.verdict);
                other.time += result.time;
            }
            None => merged.push(result),
        }
    }
    merged
}

/// A sentence for people about a problem. No decision depends on its text.
#[derive(Debug)]
pub enum Finding {
    Wrong(String),
    /// Nothing could be found out.
    Untried(String),
}

impl Finding {
    pub(super) fn wrong(sentence: impl Into<String>) -> Self {
        Self::Wrong(sentence.into())
    }

    pub(super) fn untried(sentence: impl Into<String>) -> Self {
        Self::Untried(sentence.into())
    }
}

impl<E: Error> From<E> for Finding {
    fn from(error: E) -> Self {
        Self::Wrong(error.to_string())
    }
}

impl From<Result<(), Finding>> for Verdict {
    fn from(result: Result<(), Finding>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(Finding::Wrong(reason)) => Self::Failed { reason },
            Err(Finding::Untried(reason)) => Self::Skipped { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(check: Check, verdict: Verdict) -> CheckResult {
        CheckResult { check, verdict, time: Duration::from_secs(1) }
    }

    #[test]
    fn check_failed_in_either_vm_fails() {
        let failed = Verdict::Failed { reason: "off by an hour".to_owned() };
        let skipped = Verdict::Skipped { reason: "no python3".to_owned() };
        let merged = merge(
            vec![result(Check::Clock, Verdict::Passed), result(Check::Entropy, skipped.clone())],
            vec![result(Check::Clock, failed.clone()), result(Check::Parent, Verdict::Passed)],
        );
        let verdicts: Vec<_> = merged.iter().map(|result| result.verdict.clone()).collect();
        assert_eq!(verdicts, [failed, skipped, Verdict::Passed]);
        assert_eq!(merged[0].time, Duration::from_secs(2));
        assert!(!is_sound(&merged) && is_sound(&merged[1..]), "what was skipped is no failure");
    }
}
