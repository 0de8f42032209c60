//! Formats the rungs of a deep check as text for people and as JSON.

use std::time::Duration;

use agentiso_selfcheck::{CheckResult, Step, StepResult, Verdict};
use serde_json::{Value, json};

use crate::output;

/// The name of the first rung: the files that VMs boot from.
pub(super) const BOOT_FILES: &str = "boot files";

#[derive(Clone, Debug)]
pub(super) struct Rung {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    pub(super) time: Duration,
    pub(super) detail: String,
    pub(super) checks: Vec<CheckResult>,
    /// Warnings that were logged meanwhile.
    pub(super) notes: Vec<String>,
}

impl Rung {
    pub(super) fn new(result: StepResult, notes: Vec<String>) -> Self {
        let StepResult { step, verdict, time, detail, checks } = result;
        Self { name: step.as_str(), verdict, time, detail, checks, notes }
    }

    /// A rung that was not tried because `needed` failed.
    pub(super) fn without(step: Step, needed: &str) -> Self {
        let verdict = Verdict::Skipped { reason: format!("{needed} failed") };
        let (time, detail, checks, notes) = Default::default();
        Self { name: step.as_str(), verdict, time, detail, checks, notes }
    }

    fn passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }
}

pub(super) fn all_passed(rungs: &[Rung]) -> bool {
    rungs.iter().all(Rung::passed)
}

fn columns(name: &str, verdict: &str, colour: Option<&str>, time: &str, detail: &str) -> String {
    let verdict = match colour {
        Some(colour) => format!("\x1b[{colour}m{verdict:<9}\x1b[0m"),
        None => format!("{verdict:<9}"),
    };
    format!("{name:<19}  {verdict}  {time:>8}  {detail}").trim_end().to_owned()
}

pub(super) fn heading() -> String {
    columns("RUNG", "VERDICT", None, "TIME", "DETAIL")
}

/// The row of a rung, and below it the details of a failure.
pub(super) fn row(rung: &Rung) -> String {
    let (word, colour) = match rung.verdict {
        Verdict::Passed => ("ok", "32"),
        Verdict::Failed { .. } => ("FAIL", "31"),
        Verdict::Skipped { .. } => ("not tried", "33"),
    };
    let time = match rung.verdict {
        Verdict::Passed | Verdict::Failed { .. } => seconds(rung.time),
        Verdict::Skipped { .. } => "-".to_owned(),
    };
    let reason = rung.verdict.reason().unwrap_or_default();
    let mut lines = reason.lines();
    let detail = match rung.verdict {
        Verdict::Passed => passed_detail(rung),
        Verdict::Failed { .. } | Verdict::Skipped { .. } => lines.next().unwrap_or_default().to_owned(),
    };
    let colour = output::stdout_has_colour().then_some(colour);
    let mut text = columns(rung.name, word, colour, &time, &detail);
    for line in lines {
        text += &format!("\n    {line}");
    }
    for note in &rung.notes {
        text += &format!("\n    note: {note}");
    }
    text
}

fn passed_detail(rung: &Rung) -> String {
    let skipped: Vec<_> =
        rung.checks.iter().filter(|c| matches!(c.verdict, Verdict::Skipped { .. })).collect();
    let mut parts = vec![rung.detail.clone()];
    if !rung.checks.is_empty() {
        parts.push(format!("{} checks passed", rung.checks.len() - skipped.len()));
    }
    for check in skipped {
        let reason = check.verdict.reason().unwrap_or_default();
        parts.push(format!("{} skipped: {reason}", check.check));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        1..=99 => format!("{:.1} s", time.as_secs_f64()),
        _ => format!("{} s", time.as_secs()),
    }
}

pub(super) fn summary(rungs: &[Rung], time: Duration) -> String {
    let failed = |rung: &&Rung| matches!(rung.verdict, Verdict::Failed { .. });
    let names: Vec<_> = rungs.iter().filter(failed).map(|rung| rung.name).collect();
    let untried = rungs.iter().filter(|rung| matches!(rung.verdict, Verdict::Skipped { .. })).count();
    let all = rungs.len();
    if names.is_empty() && untried == 0 {
        return format!(
            "All {all} rungs passed in {}: VMs boot, restore and fork correctly on this host.",
            seconds(time)
        );
    }
    let untried = match untried {
        0 => String::new(),
        count => format!(", and {count} could not be tried"),
    };
    format!("{} of {all} rungs failed ({}){untried}.", names.len(), names.join(", "))
}

pub(super) fn json(rungs: &[Rung], time: Duration, vm: Value) -> Value {
    json!({
        "ok": all_passed(rungs),
        "seconds": time.as_secs_f64(),
        "machine": vm,
        "rungs": rungs.iter().map(rung_json).collect::<Vec<_>>(),
    })
}

fn rung_json(rung: &Rung) -> Value {
    json!({
        "name": rung.name,
        "verdict": rung.verdict.as_str(),
        "reason": rung.verdict.reason(),
        "seconds": rung.time.as_secs_f64(),
        "detail": rung.detail,
        "checks": rung.checks.iter().map(check_json).collect::<Vec<_>>(),
        "notes": rung.notes,
    })
}

fn check_json(result: &CheckResult) -> Value {
    json!({
        "name": result.check.as_str(),
        "verdict": result.verdict.as_str(),
        "reason": result.verdict.reason(),
        "seconds": result.time.as_secs_f64(),
    })
}

#[cfg(test)]
mod tests {
    use agentiso_selfcheck::Check;

    use super::*;

    fn rung(verdict: Verdict) -> Rung {
        let skipped = Verdict::Skipped { reason: "the image has no python3".to_owned() };
        let check = |check, verdict| CheckResult { check, verdict, time: Duration::ZERO };
        Rung {
            name: "cold boot",
            verdict,
            time: Duration::from_millis(8_240),
            detail: String::new(),
            checks: vec![check(Check::Clock, Verdict::Passed), check(Check::PythonEntropy, skipped)],
            notes: Vec::new(),
        }
    }

    #[test]
    fn passed_rung_row_counts_its_checks() {
        assert_eq!(
            row(&rung(Verdict::Passed)),
            "cold boot            ok            8.2 s  1 checks passed; python entropy skipped: the image has no python3"
        );
    }

    #[test]
    fn failed_rung_row_gives_reason_and_notes() {
        let failed = Verdict::Failed { reason: "the VM ended; the console ends with:\npanic".to_owned() };
        let shown = row(&Rung { notes: vec!["WARN slow".to_owned()], ..rung(failed) });
        let expected = "cold boot            FAIL          8.2 s  the VM ended; the console ends with:\n    \
                        panic\n    note: WARN slow";
        assert_eq!(shown, expected);
    }

    #[test]
    fn deep_check_passes_only_without_failed_rungs() {
        let failed = rung(Verdict::Failed { reason: "x".to_owned() });
        let rungs = [rung(Verdict::Passed), failed, Rung::without(Step::ForkOfFork, "cold boot")];
        assert!(all_passed(&rungs[..1]) && !all_passed(&rungs) && !all_passed(&rungs[2..]));
        let text = summary(&rungs, Duration::from_secs(1));
        assert_eq!(text, "1 of 3 rungs failed (cold boot), and 1 could not be tried.");
        assert!(summary(&rungs[..1], Duration::from_secs(61)).starts_with("All 1 rungs passed in 61.0 s"));
        let shown = json(&rungs, Duration::from_secs(1), Value::Null);
        assert_eq!(shown["ok"], false);
        assert_eq!(shown["rungs"][2]["verdict"], "skipped");
        assert_eq!(shown["rungs"][0]["checks"][1]["reason"], "the image has no python3");
    }
}
