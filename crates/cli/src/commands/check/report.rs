//! The outcome of one check, and the printing of outcomes.

use serde::Serialize;

use crate::failure::Failure;
use crate::output;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// Worth knowing, but workspaces can run.
    Note,
    /// Workspaces cannot run until it is fixed.
    Failed,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

impl Outcome {
    pub(crate) fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, detail: detail.into(), fix: None }
    }

    pub(crate) fn note(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Note, detail: detail.into(), fix: Some(fix.into()) }
    }

    pub(crate) fn failed(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Failed, detail: detail.into(), fix: Some(fix.into()) }
    }
}

/// The choice for one part (such as the accelerator), and its reason.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Picked {
    pub(crate) value: String,
    pub(crate) why: String,
}

impl Picked {
    pub(crate) fn new(value: impl Into<String>, why: impl Into<String>) -> Self {
        Self { value: value.into(), why: why.into() }
    }
}

pub(crate) fn print(outcomes: &[Outcome], picked: &[(&'static str, Picked)]) -> Result<(), Failure> {
    let width = outcomes.iter().map(|outcome| outcome.name.len()).max().unwrap_or(0);
    for outcome in outcomes {
        output::line(&line(outcome, width, output::stdout_has_colour()))?;
    }
    output::line("")?;
    output::line("picked:")?;
    for (name, picked) in picked {
        output::line(&format!("  {name:<12} {} ({})", picked.value, picked.why))?;
    }
    Ok(())
}

fn line(outcome: &Outcome, width: usize, colour: bool) -> String {
    let (word, code) = match outcome.verdict {
        Verdict::Ok => ("ok", "32"),
        Verdict::Note => ("note", "33"),
        Verdict::Failed => ("FAIL", "31"),
    };
    let word = if colour { format!("\x1b[{code}m{word:<4}\x1b[0m") } else { format!("{word:<4}") };
    let fix = outcome.fix.as_ref().map(|fix| format!("; fix: {fix}")).unwrap_or_default();
    format!("{word} {:<width$}  {}{fix}", outcome.name, outcome.detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_line_has_name_finding_and_fix() {
        let outcome = Outcome::failed("QEMU", "not installed", "apt-get install qemu-system-x86");
        assert_eq!(
            line(&outcome, 6, false),
            "FAIL QEMU    not installed; fix: apt-get install qemu-system-x86"
        );
    }
}
