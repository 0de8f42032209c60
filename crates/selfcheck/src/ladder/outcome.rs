//! The outcome of a step, before it is judged.

use std::time::Duration;

use agentiso_host::Booted;
use agentiso_vm::Rung;

use crate::verdict::{CheckResult, Verdict};

/// A step that was performed.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) time: Duration,
    pub(super) detail: String,
    /// The reason why it was not performed as it should have been.
    pub(super) complaint: Option<String>,
    pub(super) checks: Vec<CheckResult>,
}

impl Outcome {
    /// Judges how a VM started. One that started another way than wanted is not examined.
    pub(super) fn of_boot(booted: &Booted, wanted: Rung) -> Self {
        let complaint = (booted.rung != wanted).then(|| {
            let why = booted.warning.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("it started by {} instead of {wanted}{why}", booted.rung)
        });
        Self { time: booted.boot_time, complaint, ..Self::default() }
    }

    pub(super) fn verdict(&self) -> Verdict {
        let failed = self.checks.iter().filter_map(|result| match &result.verdict {
            Verdict::Failed { reason } => Some(format!("{}: {reason}", result.check)),
            Verdict::Passed | Verdict::Skipped { .. } => None,
        });
        let reasons: Vec<_> = self.complaint.iter().cloned().chain(failed).collect();
        match reasons.is_empty() {
            true => Verdict::Passed,
            false => Verdict::Failed { reason: reasons.join("; ") },
        }
    }
}

pub(super) fn describe_pause(pause: Duration) -> String {
    format!("the source was paused for {:.1} ms", pause.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Check;

    #[test]
    fn failed_step_lists_all_reasons() {
        let check = |check, verdict| CheckResult { check, verdict, time: Duration::ZERO };
        let skipped = check(Check::PythonEntropy, Verdict::Skipped { reason: "no python3".to_owned() });
        let failed = |reason: &str| Verdict::Failed { reason: reason.to_owned() };
        let mut done =
            Outcome { checks: vec![check(Check::Clock, Verdict::Passed), skipped], ..Outcome::default() };
        assert_eq!(done.verdict(), Verdict::Passed);
        done.checks.push(check(Check::Clock, failed("an hour behind")));
        done.checks.push(check(Check::Network, failed("no address")));
        assert_eq!(done.verdict(), failed("clock: an hour behind; network: no address"));
        done.complaint = Some("it came up late".to_owned());
        assert!(done.verdict().reason().is_some_and(|reason| reason.starts_with("it came up late; clock")));
    }
}
