//! What was promised, as limits on figures of one run. Times are judged as ratios only: they then mean the same
//! on every machine.

use serde::Serialize;

use crate::figures::{Figures, Key};

/// A restored workspace against a booted one.
const CREATE_SHARE: f64 = 1.0 / 6.0;

/// A command over MCP against the least it can cost: the way there and back, and the process.
const EXEC_FACTOR: f64 = 2.0;

/// Twenty idle workspaces of 512 MB with the daemon.
const IDLE_BYTES: f64 = 2.5e9;

const DAEMON_BYTES: f64 = 40e6;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met,
    Missed,
    NotMeasured,
}

impl Verdict {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::NotMeasured => "not measured",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Goal {
    pub(crate) title: &'static str,
    pub(crate) measured: Option<f64>,
    pub(crate) limit: f64,
    pub(crate) unit: Unit,
    pub(crate) verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Ratio,
    Bytes,
}

/// The goals over the figures of one run.
pub(crate) fn judge(figures: &Figures) -> Vec<Goal> {
    let number = |key| figures.number(key);
    let over = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
    let least = sum(number(Key::RawEcho), number(Key::GuestSpawn));
    vec![
        goal(
            "create from a template to first exec / cold boot to first exec, p50",
            over(number(Key::TemplateCreate), number(Key::ColdCreate)),
            CREATE_SHARE,
            Unit::Ratio,
        ),
        goal(
            "exec true over MCP / (raw echo + spawn inside the guest), p50",
            over(number(Key::Exec), least),
            EXEC_FACTOR,
            Unit::Ratio,
        ),
        goal(
            "20 idle 512 MB workspaces with the daemon, PSS",
            number(Key::IdleMemory),
            IDLE_BYTES,
            Unit::Bytes,
        ),
        goal("the daemon with 20 workspaces, PSS", number(Key::IdleDaemon), DAEMON_BYTES, Unit::Bytes),
    ]
}

fn goal(title: &'static str, measured: Option<f64>, limit: f64, unit: Unit) -> Goal {
    let verdict = match measured {
        Some(value) if value <= limit => Verdict::Met,
        Some(_) => Verdict::Missed,
        None => Verdict::NotMeasured,
    };
    Goal { title, measured, limit, unit, verdict }
}

/// Comparisons beside the goals: a name, and how many times as long (or large) the first is.
pub(crate) fn ratios(figures: &Figures) -> Vec<(&'static str, Option<f64>)> {
    let over = |a, b| Some(figures.number(a)? / figures.number(b)?);
    vec![
        ("cold boot to first exec / plain QEMU boot", over(Key::ColdCreate, Key::PlainBoot)),
        ("create from a template / plain QEMU boot", over(Key::TemplateCreate, Key::PlainBoot)),
        ("create from a template / crun run", over(Key::TemplateCreate, Key::CrunRun)),
        ("create from a template / bwrap", over(Key::TemplateCreate, Key::BwrapRun)),
        ("start after stop / cold boot to first exec", over(Key::StartAfterStop, Key::ColdCreate)),
        ("exec over MCP / crun exec", over(Key::Exec, Key::CrunExec)),
        ("exec over MCP / exec at the agent", over(Key::Exec, Key::AgentExec)),
        ("the agent's ping / raw echo", over(Key::AgentPing, Key::RawEcho)),
        ("1 GiB of output, exec / a pipe inside the guest", over(Key::Output, Key::GuestOutput)),
        ("1 GiB of output, exec / crun exec", over(Key::Output, Key::CrunOutput)),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::figures::Measured;

    fn millis(ms: u64) -> Measured {
        Measured::times([Duration::from_millis(ms)])
    }

    #[test]
    fn a_goal_is_met_up_to_its_limit() {
        let mut figures = Figures::default();
        figures.set(Key::ColdCreate, millis(6000));
        figures.set(Key::TemplateCreate, millis(1000));
        figures.set(Key::RawEcho, millis(1));
        figures.set(Key::GuestSpawn, millis(4));
        figures.set(Key::Exec, millis(11));
        figures.set(Key::IdleMemory, Measured::Bytes(2_500_000_001));
        let verdicts: Vec<_> = judge(&figures).into_iter().map(|goal| goal.verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Missed, Verdict::Missed, Verdict::NotMeasured]);
    }

    #[test]
    fn a_ratio_without_one_of_its_figures_is_absent() {
        let mut figures = Figures::default();
        figures.set(Key::Exec, millis(10));
        figures.set(Key::CrunExec, Measured::Absent("not installed".to_owned()));
        assert!(ratios(&figures).iter().all(|(_, value)| value.is_none()));
        figures.set(Key::CrunExec, millis(5));
        let exec = ratios(&figures).into_iter().find(|(title, _)| title.contains("crun exec")).unwrap();
        assert_eq!(exec.1, Some(2.0));
    }
}
